package etcd_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// Another handle grants a place in the moment in which it ends here, and nobody asks
// for it any more. It is a hold for WaitTTL then, and not for as long as others of
// its handle wait, on whose lease it hangs.
func TestFault50PlaceGrantedAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, dead, living := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3)
	first.TTL, dead.WaitTTL, living.WaitTTL = time.Minute, 6*time.Second, 6*time.Second
	ask := func(on store.Store, r store.Request) store.Grant {
		g, err := on.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	ask(s.direct, first)
	ask(far, dead)
	time.Sleep(dead.WaitTTL / 2)
	ask(far, living)
	s.wire.on("Txn", hold, 1)
	locktest.Poll(t, "the end of the place", locktest.Patience, func() bool { return s.wire.requests("Txn") >= 1 })
	locktest.Release(t, s.direct, first)
	granted := time.Now()
	if state := s.state("a"); len(state.Holders) != 1 || len(state.Queue) != 1 {
		t.Fatalf("want a hold of the place that ends, got %+v", state)
	}
	s.wire.arrive()
	for !ask(far, living).Held {
		if after := time.Since(granted); after > dead.WaitTTL+lag+locktest.Late {
			t.Fatalf("%v after the grant the next in line still waits: %+v", after, s.state("a"))
		}
		time.Sleep(living.WaitTTL / 10)
	}
	if after := time.Since(granted); after < dead.WaitTTL/2 {
		t.Errorf("granted %v after the one before, who had %v", after, dead.WaitTTL)
	}
	locktest.Release(t, far, living)
	s.over("a", longLease)
}

// A hold is moved to the lease of its TTL, nobody hears of that, and nobody renews
// it again. It ends all the same, and does not last for as long as others on that
// lease are renewed.
func TestFault09MovedHoldEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, waiter, other := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("b", 3)
	first.TTL = time.Minute
	waiter.TTL, waiter.WaitTTL, other.TTL = 4*time.Second, 4*time.Second, 4*time.Second
	for _, asked := range []struct {
		on store.Store
		r  store.Request
	}{{s.direct, first}, {far, waiter}, {far, other}} {
		if _, err := asked.on.Acquire(t.Context(), asked.r); err != nil {
			t.Fatal(err)
		}
	}
	locktest.Release(t, s.direct, first)
	heard(t, told)
	granted := time.Now()
	s.wire.on("Txn", mute, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := far.Renew(ctx, []store.Ref{locktest.RefTo(waiter)})[0]; err == nil {
		t.Fatal("the renewal was confirmed: the fault has not bitten")
	}
	for len(s.state("a").Holders) > 0 {
		if after := time.Since(granted); after > waiter.WaitTTL+lag+locktest.Late {
			t.Fatalf("%v after the grant it is still there: %+v", after, s.state("a"))
		}
		if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(other)})[0]; err != nil {
			t.Fatal(err)
		}
		time.Sleep(other.TTL / 10)
	}
	locktest.Release(t, far, other)
}

// A hold is moved to the lease of its TTL, and the answer comes when it has ended,
// since nobody had heard of that. The renewal says that it is lost.
func TestFault09MovedHoldHasEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, time.Minute, 3*time.Second
	locktest.Hold(t, s.direct, first)
	locktest.Queue(t, far, r)
	locktest.Release(t, s.direct, first)
	heard(t, told)
	s.wire.on("Txn", keep, 1)
	renewed := make(chan error, 1)
	go func() { renewed <- far.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0] }()
	locktest.Poll(t, "the answer is kept", locktest.Patience, s.wire.keeps)
	locktest.Poll(t, "the end", r.WaitTTL+locktest.Patience, func() bool {
		return far.Records() == 0
	})
	s.wire.arrive()
	locktest.MustBe(t, <-renewed, store.ErrLost)
	s.over("a", longLease)
}

// Another handle renews a hold from some time on, on a lease of its own. The end that
// it had here is not one for that.
func TestHoldGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	here, there := open(t, s.cluster.URL()), open(t, s.cluster.URL())
	r := locktest.Request("a", 1)
	r.TTL = 4 * time.Second
	locktest.Hold(t, here, r)
	for granted := time.Now(); time.Since(granted) < 2*r.TTL; time.Sleep(r.TTL / 8) {
		if err := there.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0]; err != nil {
			t.Fatalf("%v after its grant: %v", time.Since(granted), err)
		}
	}
	if err := there.Release(t.Context(), locktest.RefTo(r)); err != nil {
		t.Error(err)
	}
}

// A place has come to its end and is deleted, and an ask of it that was sent before
// arrives after that, when the lock is free. It is not said to be lost, which nobody
// had; who asks again has it.
func TestFault40AskArrivesAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, time.Minute, 4*time.Second
	locktest.Hold(t, s.direct, first)
	s.wire.on("", pass)
	locktest.Queue(t, far, r)
	placed := time.Now()
	s.watches()
	var ends atomic.Bool
	s.wire.plan(func(method string, n int) action {
		switch {
		case method == "Range" && n == 1: // the ask
			return hold
		case method != "Txn" || ends.Load():
			return pass
		}
		return cutAsk // grants, and the end
	})
	time.Sleep(r.WaitTTL / 4)
	answered := make(chan error, 1)
	go func() {
		_, err := far.Acquire(t.Context(), r)
		answered <- err
	}()
	locktest.Poll(t, "the ask", locktest.Patience, func() bool { return s.wire.requests("Range") >= 1 })
	if _, err := s.admin.Delete(t.Context(), etcd.HoldOf(first)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(placed.Add(r.WaitTTL + 100*time.Millisecond)))
	ends.Store(true)
	locktest.Poll(t, "the end", locktest.Patience, func() bool { return len(s.keys()) == 0 })
	s.wire.arrive()
	if err := <-answered; errors.Is(err, store.ErrLost) {
		t.Errorf("got %v, want the hold or an unknown outcome", err)
	}
	if n := len(s.state("a").Holders); n != 1 {
		t.Fatalf("%d holders: the fault has not bitten", n)
	}
	locktest.Poll(t, "the hold, asked for again", locktest.Patience, func() bool {
		g, err := far.Acquire(t.Context(), r)
		return err == nil && g.Held
	})
	if err := far.Release(t.Context(), locktest.RefTo(r)); err != nil {
		t.Error(err)
	}
	s.over("a", longLease)
}
