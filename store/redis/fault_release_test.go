package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

// The server has released and its answer is lost. Asking again finds nothing,
// which is what success looks like then.
func TestFault06ReleaseReplyLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]redistest.Action{"cut": redistest.CutReply, "mute": redistest.SwallowReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := shortLease
			o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
			c, rival := s.far(o), s.near(shortLease)
			h := s.lock(c, "a")
			waits := locktest.Begin(t, rival, "a")
			s.queued("a", 1)
			s.on(release, fault, 1)
			err := h.Unlock()
			switch name {
			case "mute": // Unlock's own time is used up before it can ask again
				locktest.MustBe(t, err, dlock.ErrUnavailable)
			default:
				if err != nil {
					t.Fatal(err)
				}
				if n := len(s.calls(release)); name == "cut" && n != 2 {
					t.Fatalf("%d releases, want 2", n)
				}
			}
			next, _ := waits.Granted(locktest.Soon)
			s.holds(next)
			s.proxy.Cut() // the mute connection
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
		s := newSite(t)
		c, rival := s.far(shortLease), s.near(shortLease)
		h := s.lock(c, "a")
		waits := locktest.Begin(t, rival, "a")
		s.queued("a", 1)
		s.on(release, redistest.Twice, 1)
		locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
		next, _ := waits.Granted(locktest.Soon)
		s.holds(next)
		locktest.Unlock(t, next)
		s.over("a", shortLease)
	})
}

// A release arrives again, or late, when the same owner has taken the lock anew.
// It takes nothing away: it names an acquisition, not an owner.
func TestFault07StaleReleaseAfterNewAcquire(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		h := open(t, s.proxy.URL())
		first, second := locktest.Request("a", 1), locktest.Request("a", 2)
		second.Owner = first.Owner
		if _, err := h.Acquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		s.on(deletion, redistest.Hold, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		locktest.MustBe(t, h.Release(ctx, locktest.RefTo(first)), context.DeadlineExceeded)

		locktest.Release(t, s.direct, first)
		g, err := s.direct.Acquire(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		s.unhold(1)
		if state := s.state("a"); len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
			t.Fatalf("the late release has left %+v", state.Holders)
		}
		locktest.MustBe(t, s.direct.Release(t.Context(), locktest.RefTo(first)), store.ErrLost)
		locktest.Release(t, s.direct, second)
		s.empty(0)
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		o := dlock.Options{TTL: 8 * time.Second, StoreTimeout: time.Second}
		c := locktest.NewClient(t, newStore(t, manyConnections(t, s.proxy.Addr)), o)
		lock := c.Mutex("a").As(dlock.NewOwner())
		first, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.on(deletion, redistest.Hold, 1)
		locktest.MustBe(t, first.Unlock(), dlock.ErrUnavailable)
		locktest.Poll(t, "a release that has overtaken", locktest.Patience, func() bool { return len(s.keys()) == 0 })
		second, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.unhold(1)
		s.holds(second)
		locktest.Unlock(t, second)
		s.over("a", o)
	})
}
