package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// A place is granted, used and released while an earlier ask of it is still without
// its answer, which says then that it waits. Nobody does, and the name is not watched
// for ever.
func TestFault02LateAnswerIsNoWaiter(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, 10*time.Second, 10*time.Second
	locktest.Hold(t, s.direct, first)
	s.wire.on("", pass)
	locktest.Queue(t, far, r)
	s.watches()
	s.wire.on("Range", keep, 1)
	answered := make(chan struct{})
	go func() {
		far.Acquire(t.Context(), r)
		close(answered)
	}()
	locktest.Poll(t, "the answer is kept", locktest.Patience, s.wire.keeps)
	locktest.Release(t, s.direct, first)
	heard(t, told)
	buried := locktest.RefTo(r)
	buried.Bury = true
	if err := far.Release(t.Context(), buried); err != nil {
		t.Fatal(err)
	}
	s.wire.arrive()
	<-answered
	locktest.Poll(t, "the end of the watch", locktest.Patience, func() bool { return far.Watches() == 0 })
}

// Grants that fail are tried again for as long as somebody waits for one, and no
// longer.
func TestFault44GrantsEndWithTheirWaiters(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, time.Minute, time.Minute
	locktest.Hold(t, s.direct, first)
	locktest.Queue(t, far, r)
	s.wire.on("Txn", full)
	// A release by another handle, which would grant the place, if it were alive.
	if _, err := s.admin.Delete(t.Context(), etcd.HoldOf(first)); err != nil {
		t.Fatal(err)
	}
	locktest.Poll(t, "grants that are refused", locktest.Patience, func() bool { return s.wire.requests("Txn") >= 3 })
	if err := far.Release(t.Context(), locktest.RefTo(r)); err == nil {
		t.Fatal("the release was not refused")
	}
	time.Sleep(600 * time.Millisecond) // one may be on its way
	s.wire.on("Txn", full)
	time.Sleep(1200 * time.Millisecond)
	if n := s.wire.requests("Txn"); n > 0 {
		t.Errorf("%d more when nobody waits", n)
	}
	s.wire.on("", pass)
	if err := far.Release(t.Context(), locktest.RefTo(r)); err != nil {
		t.Error(err)
	}
}

// Close does not wait for a grant whose lease is being renewed without an answer.
func TestFault72CloseAmidARelease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.WaitTTL = time.Minute, 10*time.Second
	locktest.Hold(t, far, first)
	locktest.Queue(t, far, r)
	locktest.Poll(t, "the watch", locktest.Patience, func() bool { return far.Sees("a", r.ID) })
	time.Sleep(1100 * time.Millisecond) // so that the lease of places has to be renewed
	s.wire.on("LeaseKeepAlive", mute)
	locktest.Release(t, far, first)
	locktest.Poll(t, "a renewal without an answer", locktest.Patience, func() bool { return s.wire.requests("LeaseKeepAlive") > 0 })
	closed := make(chan struct{})
	go func() {
		far.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(locktest.Patience):
		t.Fatal("Close does not return")
	}
}

// heard waits for an event.
func heard(t *testing.T, told <-chan store.Event) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(locktest.Patience):
		t.Fatal("no event")
	}
}
