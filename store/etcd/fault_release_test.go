package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// The server has released and its answer is lost. Asking again finds nothing,
// which is what success looks like then.
func TestFault06ReleaseReplyLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]action{"cut": cutReply, "mute": mute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			o := shortLease
			o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
			c, rival := s.far(o), s.near(shortLease)
			h := locktest.Lock(t, c, "a")
			waits := locktest.Begin(t, rival, "a")
			s.queued("a", 1)
			s.wire.on("Txn", fault, 1)
			err := h.Unlock()
			switch {
			case fault == mute: // Unlock's own time is used up before it can ask again
				locktest.MustBe(t, err, dlock.ErrUnavailable)
			case err != nil:
				t.Fatal(err)
			case s.wire.requests("Txn") != 2:
				t.Fatalf("%d releases, want 2", s.wire.requests("Txn"))
			}
			next, _ := waits.Granted(locktest.Soon)
			locktest.Poll(t, "the repeated release", locktest.Patience, func() bool { return s.wire.requests("Txn") >= 2 })
			s.holds(next)
			locktest.Unlock(t, next)
			s.over("a", o)
		})
	}
	// Somebody on the way repeats the request, and the client hears the second
	// answer, which is as good as that of a hold that was lost. It takes nothing
	// from the next holder.
	t.Run("repeated on the way", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, rival := s.far(shortLease), s.near(shortLease)
		h := locktest.Lock(t, c, "a")
		waits := locktest.Begin(t, rival, "a")
		s.queued("a", 1)
		s.wire.on("Txn", twice, 1)
		locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
		next, _ := waits.Granted(locktest.Soon)
		s.holds(next)
		locktest.Unlock(t, next)
		s.over("a", shortLease)
	})
}

// A release arrives late, when the same owner has taken the lock anew. It takes
// nothing away: it names an acquisition, not an owner.
func TestFault07StaleReleaseAfterNewAcquire(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		far := s.wire.store(t, s.cluster.Endpoints())
		first, second := locktest.Request("a", 1), locktest.Request("a", 2)
		second.Owner = first.Owner
		if _, err := far.Acquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		s.wire.on("Txn", hold, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		locktest.MustBe(t, far.Release(ctx, locktest.RefTo(first)), context.DeadlineExceeded)

		locktest.Release(t, s.direct, first)
		g, err := far.Acquire(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		s.wire.arrive()
		if state := s.state("a"); len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
			t.Fatalf("the late release has left %+v", state.Holders)
		}
		locktest.MustBe(t, far.Release(t.Context(), locktest.RefTo(first)), store.ErrLost)
		locktest.Release(t, far, second)
		s.empty(0)
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		o := dlock.Options{TTL: 6 * time.Second, StoreTimeout: 500 * time.Millisecond}
		lock := s.far(o).Mutex("a").As(dlock.NewOwner())
		first, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.wire.on("Txn", hold, 1)
		locktest.MustBe(t, first.Unlock(), dlock.ErrUnavailable)
		locktest.Poll(t, "a release that has overtaken", locktest.Patience, func() bool { return len(s.keys()) == 0 })
		second, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.wire.arrive()
		s.holds(second)
		locktest.Unlock(t, second)
		s.over("a", o)
	})
}

// The time of a hold is up, as its renewal tells, and its key is there until the handle deletes it. A release that is
// sooner tells the same.
func TestReleaseAfterTheTimeIsUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	for i, bury := range []bool{false, true} {
		r := locktest.Request("a", i+1)
		if _, err := far.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ref := locktest.RefTo(r)
		far.Expire(r.ID)
		locktest.MustBe(t, far.Renew(t.Context(), []store.Ref{ref})[0], store.ErrLost)
		ref.Bury = bury
		locktest.MustBe(t, far.Release(t.Context(), ref), store.ErrLost)
		if state := s.state("a"); len(state.Holders) > 0 {
			t.Fatalf("it left %+v", state.Holders)
		}
	}
}
