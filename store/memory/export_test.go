package memory

// Records counts the names of which anything is kept.
func (s *Store) Records() (n int) {
	for i := range s.locks.shards {
		sh := &s.locks.shards[i]
		sh.mu.Lock()
		n += len(sh.records)
		sh.mu.Unlock()
	}
	return n
}
