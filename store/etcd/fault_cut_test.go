package etcd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// unknown asserts that an error says that the call may have been carried out.
func unknown(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want an unknown outcome", what)
	}
	for _, certain := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed} {
		if errors.Is(err, certain) {
			t.Errorf("%s: %v, want an unknown outcome", what, err)
		}
	}
}

// bothCarriedOut lets the operations go that wait for others' calls, when there are two. It waits until the server has
// granted the lock a and released the lock b.
func (s *site) bothCarriedOut(h *etcd.Store, free func()) {
	s.t.Helper()
	locktest.Poll(s.t, "operations that wait", locktest.Patience, func() bool { return h.Waiting() == 2 })
	free()
	locktest.Poll(s.t, "both are carried out", locktest.Patience, func() bool {
		return len(s.state("a").Holders) == 1 && len(s.state("b").Holders) == 0
	})
}

// Close cuts a call that the server has carried out. The store does not say that nothing was done, and says
// ErrClosed to the next call.
func TestFault72CloseCutsACallThatWasCarriedOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	asked, held := newRequest("a", 1), newRequest("b", 2)
	locktest.Hold(t, h, held)
	free := h.Occupy(time.Hour)
	s.wire.on("Txn", mute)
	var calls sync.WaitGroup
	var acquired, released error
	calls.Go(func() { _, acquired = h.Acquire(context.Background(), asked) })
	calls.Go(func() { released = h.Release(context.Background(), locktest.RefTo(held)) })
	s.bothCarriedOut(h, free)
	h.Close()
	calls.Wait()
	unknown(t, "acquire", acquired)
	unknown(t, "release", released)
	_, err := h.Acquire(t.Context(), asked)
	locktest.MustBe(t, err, store.ErrClosed)
}

// A program closes the store under calls of its client. They end, and say that the store was closed: what may be left
// is left to its lease.
func TestFault72StoreClosesDuringCallsOfItsClient(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	c, err := dlock.New(h, &shortLease)
	if err != nil {
		t.Fatal(err)
	}
	held := locktest.Lock(t, c, "b")
	free := h.Occupy(time.Hour)
	s.wire.on("Txn", mute)
	locked, unlocked := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Mutex("a").LockContext(context.Background())
		locked <- err
	}()
	go func() { unlocked <- held.Unlock() }()
	s.bothCarriedOut(h, free)
	h.Close()
	locktest.MustBe(t, <-locked, dlock.ErrClosed)
	locktest.MustBe(t, <-unlocked, dlock.ErrClosed)
	locktest.MustBe(t, c.Close(), dlock.ErrClosed) // which says what is left
	s.empty(shortLease.TTL + 2*time.Second)
}

// lookedAt is a context that tells when a call has looked whether it is over, which the store does when it has seen
// that it is open.
type lookedAt struct {
	context.Context
	once   sync.Once
	looked func()
}

func (c *lookedAt) Err() error {
	c.once.Do(c.looked)
	return c.Context.Err()
}

// Close cuts the calls of a handle that Open made. The server may carry them out later.
func TestFault72CloseCutsACallOnItsWay(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := open(t, s.cluster.URL())
	held := newRequest("b", 2)
	locktest.Hold(t, h, held)
	s.cluster.Members[0].Pause()
	errs := make(chan error, 3)
	var begun sync.WaitGroup
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := h.Acquire(ctx, newRequest("a", 1)); return err },
		func(ctx context.Context) error { return h.Release(ctx, locktest.RefTo(held)) },
		func(ctx context.Context) error { _, err := h.Inspect(ctx, "a"); return err },
	} {
		begun.Add(1)
		go func() { errs <- call(&lookedAt{Context: context.Background(), looked: begun.Done}) }()
	}
	begun.Wait()
	h.Close()
	for range 3 {
		unknown(t, "a call under way", <-errs)
	}
	s.cluster.Members[0].Resume()
}

// Several operations share a call, which etcd carries out and says to have refused for want of space. The holds are
// gone, and the store does not say that they were lost before.
func TestFault41NoSpaceAfterASharedCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	kept, gone := newRequest("a", 1), newRequest("b", 2)
	locktest.Hold(t, h, kept)
	locktest.Hold(t, h, gone)
	locktest.Release(t, s.direct, gone)
	free := h.Occupy(time.Hour)
	s.wire.on("Txn", overfull, 1)
	var calls sync.WaitGroup
	var first, second error
	calls.Go(func() { first = h.Release(t.Context(), locktest.RefTo(kept)) })
	calls.Go(func() { second = h.Release(t.Context(), locktest.RefTo(gone)) })
	calls.Go(func() { locktest.Hold(t, h, newRequest("c", 3)) })
	locktest.Poll(t, "operations that wait", locktest.Patience, func() bool { return h.Waiting() == 3 })
	free()
	calls.Wait()
	if n := s.wire.requests("Txn"); n < 4 {
		t.Fatalf("%d transactions: the fault has not bitten", n)
	}
	unknown(t, "a release that was carried out", first)
	unknown(t, "a release that found nothing", second)
	for _, r := range []store.Request{kept, gone} {
		locktest.MustBe(t, h.Release(t.Context(), locktest.RefTo(r)), store.ErrLost)
	}
	if state := s.state("c"); len(state.Holders) != 1 {
		t.Errorf("%+v, want one holder", state)
	}
}

// The same of a burial, which has ended the hold.
func TestFault41NoSpaceAfterABurial(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	held := newRequest("a", 1)
	locktest.Hold(t, h, held)
	s.wire.on("Txn", overfull, 1)
	ref := locktest.RefTo(held)
	ref.Bury = true
	unknown(t, "a burial that was carried out", h.Release(t.Context(), ref))
	locktest.MustBe(t, h.Release(t.Context(), ref), store.ErrLost)
}

// There is no space for the lease of a burial. The hold is released all the same, and the store does not say that
// nothing was done.
func TestFault41NoSpaceForABurial(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	held := newRequest("a", 1)
	locktest.Hold(t, h, held)
	s.wire.on("LeaseGrant", full)
	ref := locktest.RefTo(held)
	ref.Bury = true
	unknown(t, "a burial that released the hold", h.Release(t.Context(), ref))
	if state := s.state("a"); len(state.Holders) != 0 {
		t.Errorf("%+v, want no holder", state)
	}
	locktest.MustBe(t, h.Release(t.Context(), ref), store.ErrRefused)
}

// The transaction of a burial is slow. The id is refused for the whole time from when it is written.
func TestFault05BurialCountsFromItsWriting(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	leases := func() (ids []clientv3.LeaseID) {
		answer, err := s.admin.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range answer.Leases {
			ids = append(ids, l.ID)
		}
		return ids
	}
	remains := func(id clientv3.LeaseID) int64 {
		answer, err := s.admin.TimeToLive(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return answer.TTL
	}
	s.wire.on("Txn", hold, 1)
	ref := locktest.RefTo(newRequest("a", 1))
	ref.TTL, ref.Bury = 6*time.Second, true
	buried := make(chan error, 1)
	go func() { buried <- h.Release(t.Context(), ref) }()
	locktest.Poll(t, "a transaction on its way", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	ids := leases()
	if len(ids) != 1 {
		t.Fatalf("%d leases, want that of the burial", len(ids))
	}
	locktest.Poll(t, "less than the time is left", locktest.Patience, func() bool { return remains(ids[0]) < 4 })
	s.wire.arrive()
	locktest.MustBe(t, <-buried, store.ErrLost)
	if left := remains(ids[0]); left < 5 { // whole seconds, of which one may have passed
		t.Errorf("the id is refused for %d s, want 6", left)
	}
}
