package zookeeper

import (
	"math/rand/v2"
)

// minCreated is after how many new names a handle may sweep.
const minCreated = 64

// created counts a new name, and asks now and then whether to remove records that have
// expired and that no call comes to: those of clients that died, and buried ids. List
// removes what has expired with each record that it reads. A record that cannot be read is
// left, and what fails is swept another time.
func (s *Store) created() {
	if s.made.Add(1)%minCreated != 0 {
		return
	}
	go func() {
		_, stat, err := s.conn.Exists(s.root + locksFolder)
		if err == nil && due(minCreated, int(stat.NumChildren)) {
			_, _ = s.List(s.ctx)
		}
	}()
}

// due draws whether to sweep that many records after so many new names. A new name
// leads to the reading of one record on average, whoever made the records. So expired
// records are bounded by a multiple of those in use.
func due(created, records int) bool { return rand.N(max(records, 1)) < created }
