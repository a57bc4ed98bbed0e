package etcd

// Key is the key of an id under a name.
func Key(name, id string) string { return layout{"dlock"}.entry(name, id) }
