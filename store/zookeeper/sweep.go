package zookeeper

// minCreated is after how many new names a handle sweeps at the earliest.
const minCreated = 64

// sweeping decides when records are removed that have expired and that no call
// comes to: those of clients that died, and buried ids.
type sweeping struct {
	created int // names that this handle has made since the last sweep
	kept    int // names that the last sweep left
	running bool
}

// created counts a new name and sweeps when there may be as many expired records
// as there were records. So a new name costs a constant, and expired records
// are bounded by a multiple of those in use.
func (s *Store) created() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.created++
	if s.closed || s.sweep.running || s.sweep.created < max(minCreated, s.sweep.kept) {
		return
	}
	s.sweep.created, s.sweep.running = 0, true
	go s.sweepAll()
}

// sweepAll removes what has expired. A record that cannot be read is left.
func (s *Store) sweepAll() {
	names, _ := s.allNames()
	left := make([]bool, len(names))
	each(len(names), func(i int) error {
		left[i] = true
		return s.update(s.ctx, operation{name: names[i], do: func(st *step) error {
			st.record.Settle(&st.call)
			left[i] = !st.record.Empty()
			return nil
		}})
	})
	kept := 0
	for _, l := range left {
		if l {
			kept++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.kept, s.sweep.running = kept, false
}
