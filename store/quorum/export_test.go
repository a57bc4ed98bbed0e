package quorum

// Entries returns how many ids, and tries of them, a handle keeps something of.
func Entries(s *Store) (n int) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, o := range s.table.owners {
		n += 1 + len(o.entries)
	}
	return n + len(s.table.tries)
}

// Chores returns how many releases a handle has yet to get through.
func Chores(s *Store) (n int) {
	for _, node := range s.nodes {
		node.chores.mu.Lock()
		n += len(node.chores.jobs)
		node.chores.mu.Unlock()
	}
	return n
}
