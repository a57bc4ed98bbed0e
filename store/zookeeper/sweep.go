package zookeeper

// minCreated is after how many new names a handle sweeps at the earliest.
const minCreated = 64

// sweeping decides when records are removed that have expired and that no call
// comes to: those of clients that died, and buried ids.
type sweeping struct {
	created int // names that this handle has made since the last sweep
	kept    int // names in use at the last sweep
	running bool
}

// created counts a new name and sweeps when there may be as many expired records
// as there were records. So a new name costs a constant, and expired records
// are bounded by a multiple of those in use.
func (s *Store) created() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.created++
	if s.ctx.Err() != nil || s.sweep.running || s.sweep.created < max(minCreated, s.sweep.kept) {
		return
	}
	s.sweep.created, s.sweep.running = 0, true
	go s.sweepAll()
}

// sweepAll removes what has expired, as List does with each record that it reads. A
// record that cannot be read is left.
func (s *Store) sweepAll() {
	names, err := s.List(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.sweep.kept = len(names)
	}
	s.sweep.running = false
}
