package quorum

// Entries returns how many ids a handle keeps something of.
func Entries(s *Store) int {
	s.entries.mu.Lock()
	defer s.entries.mu.Unlock()
	return len(s.entries.entries)
}

// Chores returns how many releases a handle has yet to get through.
func Chores(s *Store) (n int) {
	for _, node := range s.nodes {
		node.chores.mu.Lock()
		n += len(node.chores.list)
		node.chores.mu.Unlock()
	}
	return n
}

// Open reports whether a request of an id may still arrive at node i.
func Open(s *Store, name, id string, i int) bool {
	s.entries.mu.Lock()
	defer s.entries.mu.Unlock()
	e := s.entries.entries[key{name, id}]
	return e != nil && e.tries[i].open()
}
