package zookeeper

// PathOf is the path of a name's record below the default root.
func PathOf(name string) string { return (&Store{root: DefaultRoot}).namePath(name) }
