package etcd_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// The link to a holder goes half open: nothing arrives, nothing is closed. The
// holder is told before a rival is granted.
func TestFault10HalfOpenLinkAtHolder(t *testing.T) {
	t.Parallel()
	o := dlock.Options{TTL: 9 * time.Second} // of which 92 ms are margin, more than a busy machine stands still
	for run, healthy := range []time.Duration{0, o.TTL / 4, o.TTL / 2} {
		t.Run(strconv.Itoa(run), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			c, proxies := s.behind(o)
			rival := s.near(o)
			h := locktest.Lock(t, c, "a")
			waits := locktest.Begin(t, rival, "a")
			s.queued("a", 1)
			<-time.After(healthy) // so that the lease is new, or about to be renewed, or was
			ended := locktest.Ended(h)
			proxies[0].Blackhole(true)
			next, grantedAt := waits.Granted(o.TTL + lag + locktest.Late)
			if after := (<-ended).Sub(grantedAt); after >= 0 {
				t.Errorf("told %v after the rival had been granted", after)
			}
			locktest.MustBe(t, h.Err(), dlock.ErrLost)
			proxies[0].Blackhole(false)
			locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
			s.holds(next)
			locktest.Unlock(t, next)
			s.over("a", o)
		})
	}
}

// The link to a waiter goes half open. Its deadline is kept, its wait has an end,
// and when the link is back the waiter gets in.
func TestFault11HalfOpenLinkAtWaiter(t *testing.T) {
	t.Parallel()
	o := dlock.Options{TTL: 4 * time.Second, StoreTimeout: time.Second}
	t.Run("caller's deadline", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, proxies := s.behind(o)
		h := locktest.Lock(t, s.near(o), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		waits := locktest.BeginWith(t, ctx, c, "a")
		s.queued("a", 1)
		proxies[0].Blackhole(true)
		at, err := waits.Failed(2 * time.Second)
		locktest.MustBe(t, err, context.DeadlineExceeded)
		if after := at.Sub(deadline); after > 50*time.Millisecond+locktest.Late {
			t.Errorf("returned %v after the deadline", after)
		}
		proxies[0].Blackhole(false)
		s.queued("a", 0)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("for good", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, proxies := s.behind(o)
		h := locktest.Lock(t, s.near(o), "a")
		waits := locktest.Begin(t, c, "a")
		s.queued("a", 1)
		proxies[0].Blackhole(true)
		_, err := waits.Failed(o.TTL + locktest.Late)
		locktest.MustBe(t, err, dlock.ErrUnavailable)
		locktest.Poll(t, "its place runs out", o.TTL+spare+lag, func() bool { return len(s.state("a").Queue) == 0 })
		proxies[0].Blackhole(false)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	// Nobody else grants a waiter what it does not ask for, so others find it at
	// the head of the queue, and it gets in when it can.
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, proxies := s.behind(o)
		h := locktest.Lock(t, s.near(o), "a")
		waits := locktest.Begin(t, c, "a")
		s.queued("a", 1)
		proxies[0].Blackhole(true)
		locktest.Unlock(t, h)
		<-time.After(o.TTL / 2)
		waits.Waits()
		_, err := s.near(o).Mutex("a").TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrHeld)
		proxies[0].Blackhole(false)
		next, _ := waits.Granted(locktest.Soon + locktest.Late)
		s.holds(next)
		locktest.Unlock(t, next)
		s.over("a", o)
	})
}

// The server is slower than the lease is long. A grant that arrives when it is
// over is given back and never returned as held.
func TestFault12SlowStore(t *testing.T) {
	t.Parallel()
	t.Run("latency", func(t *testing.T) {
		t.Parallel()
		o := dlock.Options{TTL: time.Second, StoreTimeout: 5 * time.Second} // less than slowness
		s := newSite(t, 1)
		c, rival := s.far(o), s.near(longLease)
		s.wire.on("Txn", slow, 1)
		_, err := c.Mutex("a").TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrLost)
		// Of the caller, and of the end of its record, unless its lease has ended first.
		locktest.Poll(t, "a release", locktest.Soon, func() bool { return s.wire.requests("Txn") >= 2 || len(s.keys()) == 0 })
		h, _ := locktest.Begin(t, rival, "a").Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("server stands still", func(t *testing.T) {
		t.Parallel()
		o := dlock.Options{TTL: 3 * time.Second, StoreTimeout: 10 * time.Second}
		s := newSite(t, 1)
		c, rival := s.near(o), s.near(longLease)
		s.cluster.Members[0].Pause()
		began := time.Now()
		tried := make(chan error, 1)
		go func() {
			_, err := c.Mutex("a").TryLockContext(t.Context())
			tried <- err
		}()
		<-time.After(time.Until(began.Add(o.TTL + 200*time.Millisecond)))
		s.cluster.Members[0].Resume()
		locktest.MustBe(t, <-tried, dlock.ErrLost)
		h, _ := locktest.Begin(t, rival, "a").Granted(locktest.Soon) // the server would keep it for longer
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
}
