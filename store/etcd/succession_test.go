package etcd_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// A release on its way is overtaken by a request of the same handle, which takes
// the hold's place and not a place behind it. The release finds its hold gone,
// and has done what it was to do.
func TestRequestOvertakesRelease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	first, second, third := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3)
	before, err := h.Acquire(t.Context(), first)
	if err != nil || !before.Held {
		t.Fatalf("got %+v, %v", before, err)
	}
	s.wire.on("Txn", hold, 1)
	released := make(chan error, 1)
	go func() { released <- h.Release(t.Context(), locktest.RefTo(first)) }()
	locktest.Poll(t, "the release is on its way", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })

	g, err := h.Acquire(t.Context(), second)
	if err != nil || !g.Held || g.Token <= before.Token {
		t.Fatalf("got %+v, %v", g, err)
	}
	if n := s.wire.requests("Txn"); n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
	s.wire.arrive()
	if err := <-released; err != nil {
		t.Errorf("the release: %v", err)
	}
	state := s.state("a")
	if len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
		t.Fatalf("the holders are %+v", state.Holders)
	}
	if err := h.Release(t.Context(), locktest.RefTo(first)); !errors.Is(err, store.ErrLost) {
		t.Errorf("released again: %v, want ErrLost", err)
	}

	// Somebody else waits: then nobody overtakes.
	waiting := locktest.Request("a", 4)
	if g, err := s.direct.Acquire(t.Context(), waiting); err != nil || g.Held {
		t.Fatalf("got %+v, %v", g, err)
	}
	s.wire.on("Txn", hold, 1)
	go func() { released <- h.Release(t.Context(), locktest.RefTo(second)) }()
	locktest.Poll(t, "the release is on its way", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	if g, err := h.Acquire(t.Context(), third); err != nil || g.Held || g.Position != 2 {
		t.Fatalf("got %+v, %v", g, err)
	}
	s.wire.arrive()
	if err := <-released; err != nil {
		t.Errorf("the release: %v", err)
	}
	if g, err := s.direct.Acquire(t.Context(), waiting); err != nil || !g.Held {
		t.Fatalf("got %+v, %v", g, err)
	}
}

// A release grants whoever of its handle is next, in one transaction.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	s, n := counted(t, etcdtest.Start(t, 1))
	told := make(chan store.Event, 16)
	s.Listen(func(e store.Event) { told <- e })
	const turns = 20
	at := func(i int) store.Request {
		r := newRequest("a", 1+i)
		r.Queue = true
		return r
	}
	if g, err := s.Acquire(t.Context(), at(0)); err != nil || !g.Held {
		t.Fatalf("got %+v, %v", g, err)
	}
	for i := range turns {
		if g, err := s.Acquire(t.Context(), at(i+1)); err != nil || g.Held {
			t.Fatalf("got %+v, %v", g, err)
		}
		locktest.Poll(t, "the watch tells of the place", locktest.Patience, func() bool { return s.Sees("a", at(i+1).ID) })
		n.take()
		if err := s.Release(t.Context(), refOf(at(i))); err != nil {
			t.Fatal(err)
		}
		if e := <-told; e.ID != at(i+1).ID {
			t.Fatalf("turn %d: the event is %+v", i, e)
		}
		if requests := n.take(); requests["Txn"] != 1 {
			t.Errorf("turn %d took %v, want one transaction", i, requests)
		}
	}
}

// A release that finds nothing says so, though a request was on its way that would
// have taken the hold's place, if that request has certainly failed.
func TestReleaseFindsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	first, second := locktest.Request("a", 1), locktest.Request("a", 2)
	if g, err := h.Acquire(t.Context(), first); err != nil || !g.Held {
		t.Fatalf("got %+v, %v", g, err)
	}
	s.wire.on("Txn", hold, 1)
	released := make(chan error, 1)
	go func() { released <- h.Release(t.Context(), locktest.RefTo(first)) }()
	locktest.Poll(t, "the release is on its way", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	all, err := s.admin.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if _, err := s.admin.Revoke(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	if g, err := h.Acquire(t.Context(), second); err == nil {
		t.Fatalf("got %+v on a lease that is gone", g)
	}
	s.wire.arrive()
	if err := <-released; !errors.Is(err, store.ErrLost) {
		t.Errorf("the release of what was revoked: %v, want ErrLost", err)
	}
}
