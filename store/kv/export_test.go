package kv

// CountFromZero makes a new handle sweep after minCreated names, not earlier.
func (s *Store) CountFromZero() { s.sweep.created = 0 }
