package redis_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

// Leases of the rows on unknown outcomes: short ones, and those that outlive a
// connection gone mute, which is probed after 1 s and given up 3 s later.
var (
	shortLease = dlock.Options{TTL: 2 * time.Second}
	longLease  = dlock.Options{TTL: 8 * time.Second, WaitTTL: 8 * time.Second, StoreTimeout: time.Second}
)

const muteFor = 4 * time.Second

// The connection breaks before the request has left. It is asked again under
// the same id.
func TestFault01AcquireRequestLost(t *testing.T) {
	t.Parallel()
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c := s.far(shortLease)
		s.on(acquire, redistest.CutBefore, 1, 2, 3)
		h := s.lock(c, "a")
		asks := s.calls(acquire)
		if len(asks) != 4 {
			t.Fatalf("%d requests, want 4", len(asks))
		}
		for _, ask := range asks {
			if ask[0] != asks[0][0] {
				t.Fatalf("the ids are %s and %s", asks[0][0], ask[0])
			}
		}
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", shortLease)
	})
	t.Run("until the caller's deadline", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c := s.far(shortLease)
		s.on(acquire, redistest.CutBefore)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := locktest.BeginWith(t, ctx, c, "a").Failed(500*time.Millisecond + locktest.Late)
		locktest.MustBe(t, err, context.DeadlineExceeded)
		s.over("a", shortLease)
		_, err = c.Mutex("a").TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrUnavailable)
		s.over("a", shortLease)
	})
}

// The server has granted and its answer is lost. Asking again with the same id
// gets the same grant: one hold, one token, no false "held".
func TestFault02AcquireReplyLost(t *testing.T) {
	t.Parallel()
	for name, fault := range replyFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c := s.far(longLease)
			var first atomic.Uint64 // the token that the answer told that was lost
			s.plan(func(script string, n int) redistest.Action {
				switch {
				case script == acquire && n == 1:
					return fault
				case script == acquire && n == 2:
					state, _ := s.direct.Inspect(context.Background(), "a")
					first.Store(state.Token)
				}
				return redistest.Pass
			})
			h := s.lock(c, "a")
			s.holds(h)
			if last := s.state("a").Token; last != h.Token() {
				t.Errorf("the last token is %d, the hold has %d", last, h.Token())
			}
			if name != "duplicate" && first.Load() != h.Token() {
				t.Errorf("the first answer had token %d, the second %d", first.Load(), h.Token())
			}
			locktest.Unlock(t, h)
			s.over("a", longLease)
		})
	}
}

var replyFaults = map[string]redistest.Action{
	"cut":       redistest.CutReply,
	"mute":      redistest.SwallowReply,
	"duplicate": redistest.Twice,
}

// The same for a request that was queued: it keeps its one place and its turn.
func TestFault02QueuedReplyLost(t *testing.T) {
	t.Parallel()
	for name, fault := range replyFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			holder, c, behind := s.near(longLease), s.far(longLease), s.near(longLease)
			h := s.lock(holder, "a")
			s.on(acquire, fault, 1)
			q1 := locktest.Begin(t, c, "a")
			s.queued("a", 1)
			q2 := locktest.Begin(t, behind, "a")
			s.queued("a", 2)
			locktest.Poll(t, "a second request", locktest.Patience, func() bool { return len(s.calls(acquire)) >= 2 })
			if n := len(s.state("a").Queue); n != 2 {
				t.Fatalf("%d places are taken, want 2", n)
			}
			locktest.Unlock(t, h)
			// Who has heard nothing has not subscribed either.
			h1, _ := q1.Granted(map[bool]time.Duration{true: muteFor + locktest.Soon, false: locktest.Soon}[name == "mute"])
			q2.Waits()
			locktest.Unlock(t, h1)
			h2, _ := q2.Granted(locktest.Soon)
			locktest.Unlock(t, h2)
			s.over("a", longLease)
		})
	}
}

// The server has granted or queued, its answer is lost and the caller has gone:
// the client gives back by itself, with the id buried.
func TestFault03AcquireReplyLostCallerGone(t *testing.T) {
	t.Parallel()
	o := dlock.Options{TTL: 4 * time.Second, StoreTimeout: 500 * time.Millisecond}
	// bitten looks at the server before the caller has gone: then the release comes at once.
	giveUp := func(t *testing.T, c *dlock.Client, bitten func()) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call := locktest.BeginWith(t, ctx, c, "a")
		bitten()
		cancel()
		_, err := call.Failed(locktest.Late)
		locktest.MustBe(t, err, context.Canceled)
	}
	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, rival := s.far(o), s.near(o)
		s.on(acquire, redistest.SwallowReply)
		giveUp(t, c, func() { s.granted("a") })
		h, _ := locktest.Begin(t, rival, "a").Granted(o.StoreTimeout + locktest.Soon) // the lease has 4 s
		if bury := s.calls(release)[0][1]; bury == "0" {
			t.Error("the id was not buried")
		}
		s.holds(h)
		locktest.Unlock(t, h)
		s.proxy.Cut() // the mute connection
		s.over("a", o)
	})
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, holder := s.far(o), s.near(o)
		h := s.lock(holder, "a")
		s.on(acquire, redistest.SwallowReply)
		giveUp(t, c, func() { s.queued("a", 1) }) // the fault has bitten
		locktest.Poll(t, "the place is given up", o.StoreTimeout+locktest.Soon, func() bool { return len(s.state("a").Queue) == 0 })
		s.holds(h)
		locktest.Unlock(t, h)
		s.proxy.Cut() // the mute connection
		s.over("a", o)
	})
	// The server answers nothing for a while; as soon as it does the lock is free.
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, rival := s.far(o), s.near(o)
		s.plan(func(script string, n int) redistest.Action {
			if script == acquire && n == 1 {
				return redistest.CutReply
			}
			return redistest.CutBefore
		})
		giveUp(t, c, func() { s.granted("a") })
		waits := locktest.Begin(t, rival, "a")
		s.queued("a", 1)
		locktest.Poll(t, "a few releases on a dead wire", locktest.Patience, func() bool { return len(s.calls(release)) >= 3 })
		waits.Waits()
		s.on("", redistest.Pass)
		h, _ := waits.Granted(locktest.Soon)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
}

// A request is held up on one connection, and what gives it up overtakes it on
// another. When it arrives in the end it is not granted.
func TestFault05AcquireOvertakenByCleanUp(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		h := open(t, s.proxy.URL())
		req := locktest.Request("a", 5)
		s.on(acquire, redistest.Hold, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := h.Acquire(ctx, req)
		locktest.MustBe(t, err, context.DeadlineExceeded)

		bury := locktest.RefTo(req)
		bury.Bury = true
		locktest.MustBe(t, s.direct.Release(t.Context(), bury), store.ErrLost)
		s.unhold(1)
		if state := s.state("a"); len(state.Holders)+len(state.Queue) > 0 {
			t.Fatalf("the late request is in: %+v", state)
		}
		_, err = s.direct.Acquire(t.Context(), req)
		locktest.MustBe(t, err, store.ErrLost)
		locktest.Hold(t, s.direct, locktest.Request("a", 6))
		locktest.Release(t, s.direct, locktest.Request("a", 6))
		s.over("a", dlock.Options{TTL: req.TTL})
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		o := dlock.Options{TTL: 6 * time.Second, StoreTimeout: time.Second}
		c := locktest.NewClient(t, newStore(t, manyConnections(t, s.proxy.Addr)), o)
		s.on(acquire, redistest.Hold, 1)
		_, err := c.Mutex("a").TryLockContext(t.Context())
		if err == nil {
			t.Fatal("granted: the fault has not bitten")
		}
		locktest.Poll(t, "a release that has overtaken", locktest.Patience, func() bool { return len(s.keys()) > 0 })
		s.unhold(1)
		h, _ := locktest.Begin(t, s.near(o), "a").Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
}

// unhold lets the requests that are held arrive, at least n, and waits until
// the server has run them.
func (s *site) unhold(n int) {
	s.t.Helper()
	run := func() int { return scriptCalls(s.t, s.server) + commandCalls(s.t, s.server, "hdel") }
	before := run()
	s.proxy.Unhold()
	locktest.Poll(s.t, "the late request arrives", locktest.Patience, func() bool { return run() >= before+n })
}
