package redis_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
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
		unlock(t, h)
		s.over("a", shortLease)
	})
	t.Run("until the caller's deadline", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c := s.far(shortLease)
		s.on(acquire, redistest.CutBefore)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := beginWith(t, ctx, c, "a").failed(500*time.Millisecond + late)
		mustBe(t, err, context.DeadlineExceeded)
		s.over("a", shortLease)
		_, err = c.Mutex("a").TryLockContext(t.Context())
		mustBe(t, err, dlock.ErrUnavailable)
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
			unlock(t, h)
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
			q1 := begin(t, c, "a")
			s.queued("a", 1)
			q2 := begin(t, behind, "a")
			s.queued("a", 2)
			poll(t, "a second request", patience, func() bool { return len(s.calls(acquire)) >= 2 })
			if n := len(s.state("a").Queue); n != 2 {
				t.Fatalf("%d places are taken, want 2", n)
			}
			unlock(t, h)
			// Who has heard nothing has not subscribed either.
			h1, _ := q1.granted(map[bool]time.Duration{true: muteFor + soon, false: soon}[name == "mute"])
			q2.waits()
			unlock(t, h1)
			h2, _ := q2.granted(soon)
			unlock(t, h2)
			s.over("a", longLease)
		})
	}
}

// The server has granted or queued, its answer is lost and the caller has gone:
// the client gives back by itself, with the id buried.
func TestFault03AcquireReplyLostCallerGone(t *testing.T) {
	t.Parallel()
	const gone = 300 * time.Millisecond
	o := dlock.Options{TTL: 4 * time.Second, StoreTimeout: 500 * time.Millisecond}
	giveUp := func(t *testing.T, c *dlock.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), gone)
		defer cancel()
		_, err := beginWith(t, ctx, c, "a").failed(gone + late)
		mustBe(t, err, context.DeadlineExceeded)
	}
	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, rival := s.far(o), s.near(o)
		s.on(acquire, redistest.SwallowReply)
		giveUp(t, c)
		if n := len(s.state("a").Holders); n != 1 {
			t.Fatalf("%d holders: the fault has not bitten", n)
		}
		h, _ := begin(t, rival, "a").granted(o.StoreTimeout + soon) // the lease has 4 s
		if bury := s.calls(release)[0][1]; bury == "0" {
			t.Error("the id was not buried")
		}
		s.holds(h)
		unlock(t, h)
		s.proxy.Cut() // the mute connection
		s.over("a", o)
	})
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, holder := s.far(o), s.near(o)
		h := s.lock(holder, "a")
		s.on(acquire, redistest.SwallowReply)
		giveUp(t, c)
		s.queued("a", 1) // the fault has bitten
		poll(t, "the place is given up", o.StoreTimeout+soon, func() bool { return len(s.state("a").Queue) == 0 })
		s.holds(h)
		unlock(t, h)
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
		giveUp(t, c)
		waits := begin(t, rival, "a")
		s.queued("a", 1)
		poll(t, "a few releases on a dead wire", patience, func() bool { return len(s.calls(release)) >= 3 })
		waits.waits()
		s.on("", redistest.Pass)
		h, _ := waits.granted(soon)
		unlock(t, h)
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
		req := request("a", 5)
		s.on(acquire, redistest.Hold, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := h.Acquire(ctx, req)
		mustBe(t, err, context.DeadlineExceeded)

		bury := refTo(req)
		bury.Bury = true
		mustBe(t, s.direct.Release(t.Context(), bury), store.ErrLost)
		s.unhold(1)
		if state := s.state("a"); len(state.Holders)+len(state.Queue) > 0 {
			t.Fatalf("the late request is in: %+v", state)
		}
		_, err = s.direct.Acquire(t.Context(), req)
		mustBe(t, err, store.ErrLost)
		if g, err := s.direct.Acquire(t.Context(), request("a", 6)); err != nil || !g.Held {
			t.Fatalf("another id gets %+v, %v", g, err)
		}
		if err := s.direct.Release(t.Context(), refTo(request("a", 6))); err != nil {
			t.Fatal(err)
		}
		s.over("a", dlock.Options{TTL: req.TTL})
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		o := dlock.Options{TTL: 6 * time.Second, StoreTimeout: time.Second}
		c := newClient(t, newStore(t, manyConnections(t, s.proxy.Addr)), o)
		s.on(acquire, redistest.Hold, 1)
		_, err := c.Mutex("a").TryLockContext(t.Context())
		if err == nil {
			t.Fatal("granted: the fault has not bitten")
		}
		poll(t, "a release that has overtaken", patience, func() bool { return len(s.keys()) > 0 })
		s.unhold(1)
		h, _ := begin(t, s.near(o), "a").granted(soon)
		s.holds(h)
		unlock(t, h)
		s.over("a", o)
	})
}

// unhold lets the requests that are held arrive, at least n, and waits until
// the server has run them.
func (s *site) unhold(n int) {
	s.t.Helper()
	before := scriptCalls(s.t, s.server)
	s.proxy.Unhold()
	poll(s.t, "the late request arrives", patience, func() bool { return scriptCalls(s.t, s.server) >= before+n })
}
