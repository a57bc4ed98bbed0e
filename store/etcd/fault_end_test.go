package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// Another handle grants a place in the moment in which it ends here, and nobody asks
// for it any more. It is a hold for WaitTTL then, and not for as long as others of
// its handle wait, on whose lease it hangs.
func TestFault50PlaceGrantedAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, dead, living := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3)
	first.TTL = time.Minute
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
	locktest.Poll(t, "the end of the place", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	if err := s.direct.Release(t.Context(), locktest.RefTo(first)); err != nil {
		t.Fatal(err)
	}
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
	if err := far.Release(t.Context(), locktest.RefTo(living)); err != nil {
		t.Fatal(err)
	}
	s.over("a", longLease)
}

// A hold is moved to the lease of its TTL, nobody hears of that, and nobody renews
// it again. It ends all the same, and does not last for as long as others on that
// lease are renewed.
func TestFault09MovedHoldEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := make(chan store.Event, 1)
	far.Listen(func(e store.Event) { told <- e })
	first, waiter, other := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("b", 3)
	for _, asked := range []struct {
		on store.Store
		r  store.Request
	}{{s.direct, first}, {far, waiter}, {far, other}} {
		if _, err := asked.on.Acquire(t.Context(), asked.r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.direct.Release(t.Context(), locktest.RefTo(first)); err != nil {
		t.Fatal(err)
	}
	<-told
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
	if err := far.Release(t.Context(), locktest.RefTo(other)); err != nil {
		t.Fatal(err)
	}
}
