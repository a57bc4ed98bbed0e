package zookeeper

import (
	"math/rand/v2"

	"github.com/go-zookeeper/zk"
)

// minCreated is after how many new names a handle may sweep.
const minCreated = 64

// sweeping decides when records are removed that have expired and that no call
// comes to: those of clients that died, and buried ids.
type sweeping struct {
	created int // names that this handle has made since it last asked whether to sweep
	running bool
}

// created counts a new name, and asks now and then whether to sweep.
func (s *Store) created() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.created++
	if s.ctx.Err() != nil || s.sweep.running || s.sweep.created < minCreated {
		return
	}
	go s.maySweep(s.sweep.created)
	s.sweep.created, s.sweep.running = 0, true
}

// maySweep removes what has expired, as List does with each record that it reads. A
// record that cannot be read is left.
func (s *Store) maySweep(created int) {
	stat, err := run(s.ctx, s, func() (*zk.Stat, error) {
		_, stat, err := s.conn.Exists(s.root + locksFolder)
		return stat, err
	})
	if err == nil && due(created, int(stat.NumChildren)) {
		_, _ = s.List(s.ctx) // what fails is swept another time
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.running = false
}

// due draws whether to sweep that many records after so many new names. A new name
// leads to the reading of one record on average, whoever made the records. So expired
// records are bounded by a multiple of those in use.
func due(created, records int) bool { return rand.N(max(records, 1)) < created }
