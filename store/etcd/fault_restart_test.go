package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// The server crashes and comes back before the lease is over. It has kept
// everything: the hold goes on, whoever waits keeps its turn, and tokens grow.
func TestFault15RestartWhileHeld(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 8 * time.Second, OnLost: func(*dlock.Hold) { t.Error("OnLost was called") }}
	c, rival, behind := s.near(o), s.near(o), s.near(o)
	h := locktest.Lock(t, c, "a")
	waits2 := locktest.Begin(t, rival, "a")
	s.queued("a", 1)
	waits3 := locktest.Begin(t, behind, "a")
	s.queued("a", 2)
	s.cluster.Members[0].Restart()
	s.holds(h)
	waits2.Waits()
	locktest.Unlock(t, h)
	h2, _ := waits2.Granted(o.TTL/3 + locktest.Soon)
	waits3.Waits()
	locktest.Unlock(t, h2)
	h3, _ := waits3.Granted(o.TTL/3 + locktest.Soon)
	if h2.Token() <= h.Token() || h3.Token() <= h2.Token() {
		t.Errorf("the tokens are %d, %d, %d", h.Token(), h2.Token(), h3.Token())
	}
	locktest.Unlock(t, h3)
	s.over("a", o)
}

// The server comes back without its data. The holder is told by its next
// renewal, whoever waits gets in by asking, and what the old holder does to clear
// up leaves the new hold alone. Revisions begin anew, and so do tokens.
func TestFault15RestartWithLoss(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 3 * time.Second}
	c, rival := s.near(o), s.near(o)
	for range 50 {
		locktest.Unlock(t, locktest.Lock(t, c, "a"))
	}
	h := locktest.Lock(t, c, "a")
	waits := locktest.Begin(t, rival, "a")
	s.queued("a", 1)
	ended := locktest.Ended(h)
	s.cluster.Members[0].RestartEmpty()
	back := time.Now()
	next, _ := waits.Granted(o.TTL/3 + locktest.Soon)
	if after := (<-ended).Sub(back); after > o.TTL/3+locktest.Late {
		t.Errorf("told %v after the server was back", after)
	}
	locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
	if next.Token() >= h.Token() {
		t.Errorf("token %d after %d: they do not begin anew, which the package documentation says", next.Token(), h.Token())
	}
	s.holds(next)
	waits = locktest.Begin(t, c, "a")
	s.queued("a", 1)
	<-time.After(o.TTL) // the old holder has cleared up, and the new one has renewed
	s.holds(next)
	locktest.Unlock(t, next)
	again, _ := waits.Granted(locktest.Soon)
	locktest.Unlock(t, again)
	s.over("a", o)
}
