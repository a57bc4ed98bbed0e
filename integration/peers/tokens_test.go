package peers

import (
	"context"
	"testing"
)

// tokens has the server lose all keys while a lock is held that had been held
// before, and returns the holder's token and the next one's.
func (s *site) tokens(t testing.TB, name string) (before, after uint64) {
	t.Helper()
	c := s.near(t)
	next := s.near(t)
	for range 3 {
		if err := prepare(t, c, name).Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	h := prepare(t, c, name)
	before = h.Token()
	s.loseAll(t)
	heir := begin(context.Background(), next, name).granted(t)
	after = heir.hold.Token()
	h.Unlock() // of a lock that was lost, which may fail
	heir.hold.Unlock()
	return before, after
}
