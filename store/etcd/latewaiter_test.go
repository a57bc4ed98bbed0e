package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
)

// lastsUntil fails unless there is one hold a little before the end that its owner was told.
func lastsUntil(s *site, end time.Time) {
	s.t.Helper()
	time.Sleep(time.Until(end.Add(-300 * time.Millisecond)))
	if n := len(s.state("a").Holders); n != 1 {
		s.t.Errorf("%d holders before the end that was told", n)
	}
}

// A waiter asks late, when its own Acquire has made the hold and told of it for its TTL. The hold lasts as told: the
// lease of its place, which is longer, may end earlier.
func TestFault02LateWaiterLeavesTheHold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL, r.Fixed = time.Minute, 8*time.Second, 9*time.Second, true
	locktest.Hold(t, s.direct, first)
	s.wire.on("", pass)
	locktest.Queue(t, far, r)
	s.watches()
	time.Sleep(r.WaitTTL / 2) // the lease of the place lasts for hardly more than half of WaitTTL
	s.wire.on("Txn", hold, 1) // of the waiter
	locktest.Release(t, s.direct, first)
	locktest.Poll(t, "the waiter asks", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	g, err := far.Acquire(t.Context(), r)
	if err != nil || !g.Held {
		t.Fatal(g, err)
	}
	end := time.Now().Add(g.TTL)
	s.wire.arrive()
	lastsUntil(s, end)
}

// A repeat of a request is carried out late, when the waiter has made the hold and told of it for WaitTTL. The hold lasts
// as told, though the lease that it is moved to was renewed some time before.
func TestFault02LateAskMovesNoHoldToAShorterLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, r, other := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("b", 3)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, 9*time.Second, 8*time.Second
	other.TTL = r.TTL
	locktest.Hold(t, s.direct, first)
	s.wire.on("", pass)
	locktest.Queue(t, far, r)
	s.watches()
	locktest.Hold(t, far, other) // it makes the lease that the hold could be moved to
	time.Sleep(2 * time.Second)  // that lease has less left than the hold, and more than two thirds of its TTL
	locktest.Release(t, s.direct, first)
	heard(t, told)
	end := time.Now().Add(r.WaitTTL)
	if g, err := far.Acquire(t.Context(), r); err != nil || !g.Held {
		t.Fatal(g, err)
	}
	lastsUntil(s, end)
}
