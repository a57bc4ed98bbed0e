package etcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// An ask that says "it waits" is answered after the place was granted and the hold
// renewed. The hold lasts as it was renewed, and not as a place does.
func TestFault02LateAnswerLeavesTheHold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, r := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL, r.TTL, r.WaitTTL = time.Minute, time.Minute, 3*time.Second
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
	renew := func() {
		t.Helper()
		if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0]; err != nil {
			t.Fatal(err)
		}
	}
	renew()
	s.wire.arrive()
	<-answered
	time.Sleep(r.WaitTTL + time.Second)
	if n := len(s.state("a").Holders); n != 1 {
		t.Fatalf("%d holders, want 1", n)
	}
	renew()
	locktest.Release(t, far, r)
}

// An ask is carried out after its place was granted and that hold broken. What it takes
// is a place behind who has the lock by then, and does not pass for the hold.
func TestFault02LateAskIsNoHold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	told := locktest.Hear(far)
	first, r, third := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3)
	for _, r := range []*store.Request{&first, &r, &third} {
		r.TTL, r.WaitTTL = time.Minute, time.Minute
	}
	locktest.Hold(t, s.direct, first)
	s.wire.on("", pass)
	locktest.Queue(t, far, r)
	locktest.Queue(t, s.direct, third)
	s.watches()
	s.wire.on("Range", hold, 1)
	asked := make(chan error, 1)
	go func() {
		_, err := far.Acquire(t.Context(), r)
		asked <- err
	}()
	locktest.Poll(t, "the ask", locktest.Patience, func() bool { return s.wire.requests("Range") == 1 })
	locktest.Release(t, s.direct, first)
	heard(t, told)
	if _, err := s.admin.Delete(t.Context(), etcd.HoldOf(r)); err != nil {
		t.Fatal(err)
	}
	locktest.Poll(t, "the next hold", locktest.Patience, func() bool { return len(s.state("a").Holders) == 1 })
	s.wire.arrive()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if n := len(s.state("a").Queue); n != 1 {
		t.Fatalf("%d places: the fault has not bitten", n)
	}
	locktest.MustBe(t, far.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0], store.ErrLost)
	if state := s.state("a"); len(state.Holders) != 1 {
		t.Fatalf("the holders are %+v", state.Holders)
	}
}

// A request is carried out after its lease would have been over, when the handle has
// given up looking for it, on a lease that others keep. Nothing of it stays.
func TestFault12LateGrantOnASharedLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	keeps, r := locktest.Request("kept", 1), locktest.Request("a", 2)
	keeps.TTL, r.TTL, r.WaitTTL, r.Queue = 2*time.Second, 2*time.Second, 2*time.Second, false
	locktest.Hold(t, far, keeps)
	s.wire.on("Txn", hold, 1)
	answered := make(chan error, 1)
	go func() {
		_, err := far.Acquire(t.Context(), r)
		answered <- err
	}()
	locktest.Poll(t, "the ask", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	keep := func(d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(keeps)})[0]; err != nil {
				t.Fatal(err)
			}
		}
	}
	keep(r.TTL + time.Second)
	s.wire.arrive()
	if err := <-answered; !errors.Is(err, store.ErrLost) {
		t.Errorf("got %v", err)
	}
	keep(2 * r.TTL)
	if state := s.state("a"); len(state.Holders) > 0 {
		t.Fatalf("left: %+v", state.Holders)
	}
}

// A handle is closed when the release of a hold with a lease of its own is just done.
// The lease goes too.
func TestFault72CloseAfterARelease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	before := s.leases()
	far := s.wire.store(t, s.cluster.Endpoints())
	r := locktest.Request("a", 1)
	r.TTL, r.Fixed = time.Hour, true
	locktest.Hold(t, far, r)
	locktest.Release(t, far, r)
	far.Close()
	if n := s.leases() - before; n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
