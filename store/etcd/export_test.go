package etcd

// Sees reports whether the watch of a name has told this handle of an id.
func (s *Store) Sees(name, id string) bool {
	s.rooms.mu.Lock()
	defer s.rooms.mu.Unlock()
	r := s.rooms.m[s.keys.dir(name)]
	return r != nil && r.view != nil && r.view.kvs[s.keys.entry(name, id)] != nil
}

// Key is the key of an id under a name.
func Key(name, id string) string { return layout{"dlock"}.entry(name, id) }
