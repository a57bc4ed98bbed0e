package redis_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
)

// The server has renewed and its answer is lost. Renewal may be repeated, and
// what is not known is not relied on.
func TestFault09RenewReplyLost(t *testing.T) {
	t.Parallel()
	t.Run("two of three", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		o := dlock.Options{TTL: 4 * time.Second}
		o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
		c := s.far(o)
		h := s.lock(c, "a")
		s.plan(func(script string, n int) redistest.Action {
			if script == renew && n%3 != 0 {
				return redistest.CutReply
			}
			return redistest.Pass
		})
		locktest.Poll(t, "nine renewals", locktest.Patience, func() bool { return len(s.calls(renew)) >= 9 })
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	// The server has the hold for longer all the time, but the holder does not
	// know: it is told when what it does know is over.
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, rival := s.far(shortLease), s.near(shortLease)
		h := s.lock(c, "a")
		known := time.Now() // the last confirmed request was sent before
		s.on(renew, redistest.SwallowReply)
		waits := locktest.Begin(t, rival, "a")
		ended := locktest.Ended(h)
		next, grantedAt := waits.Granted(2*shortLease.TTL + locktest.Patience)
		endedAt := <-ended
		if got, most := endedAt.Sub(known), shortLease.TTL+locktest.Late; got > most {
			t.Errorf("told %v after the last answer, want at most %v", got, most)
		}
		if !endedAt.Before(grantedAt) {
			t.Errorf("told %v after the rival had it", endedAt.Sub(grantedAt))
		}
		if len(s.calls(renew)) == 0 {
			t.Error("no renewal came: the fault has not bitten")
		}
		locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
		s.holds(next)
		locktest.Unlock(t, next)
		s.proxy.Cut() // the mute connection
		s.over("a", shortLease)
	})
}

// endOf delivers when the hold ended.
// The link to a holder goes half open: nothing arrives, nothing is closed. The
// holder is told before a rival is granted.
func TestFault10HalfOpenLinkAtHolder(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second // of which 92 ms are margin, more than a busy machine stands still
	for run, healthy := range []time.Duration{0, lease / 4, lease / 2} {
		t.Run(strconv.Itoa(run), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c, rival := s.far(dlock.Options{TTL: lease}), s.near(dlock.Options{TTL: lease})
			h := s.lock(c, "a")
			waits := locktest.Begin(t, rival, "a")
			s.queued("a", 1)
			<-time.After(healthy) // so that the lease is new, or about to be renewed, or was
			ended := locktest.Ended(h)
			s.proxy.Blackhole(true)
			next, grantedAt := waits.Granted(lease + locktest.Late)
			endedAt := <-ended
			overlap := endedAt.Sub(grantedAt)
			t.Log("overlap", overlap)
			if overlap > 0 {
				t.Errorf("told %v after the rival had been granted", overlap)
			}
			locktest.MustBe(t, h.Err(), dlock.ErrLost)
			s.proxy.Blackhole(false)
			locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
			s.holds(next)
			locktest.Unlock(t, next)
			s.over("a", dlock.Options{TTL: lease})
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
		s := newSite(t)
		holder, c := s.near(o), s.far(o)
		h := s.lock(holder, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		waits := locktest.BeginWith(t, ctx, c, "a")
		s.queued("a", 1)
		s.proxy.Blackhole(true)
		at, err := waits.Failed(2 * time.Second)
		locktest.MustBe(t, err, context.DeadlineExceeded)
		if after := at.Sub(deadline); after > 50*time.Millisecond+locktest.Late {
			t.Errorf("returned %v after the deadline", after)
		}
		s.proxy.Blackhole(false)
		s.queued("a", 0)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("for good", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		holder, c := s.near(o), s.far(o)
		h := s.lock(holder, "a")
		waits := locktest.Begin(t, c, "a")
		s.queued("a", 1)
		s.proxy.Blackhole(true)
		_, err := waits.Failed(o.TTL + locktest.Late)
		locktest.MustBe(t, err, dlock.ErrUnavailable)
		s.proxy.Blackhole(false)
		s.queued("a", 0)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		holder, c := s.near(o), s.far(o)
		h := s.lock(holder, "a")
		waits := locktest.Begin(t, c, "a")
		s.queued("a", 1)
		s.proxy.Blackhole(true)
		locktest.Unlock(t, h) // who waits is told, in vain
		if n := len(s.state("a").Holders); n != 1 {
			t.Fatalf("%d holders, want the one who was told", n)
		}
		<-time.After(o.TTL / 2)
		waits.Waits()
		s.proxy.Blackhole(false)
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
	o := dlock.Options{TTL: 500 * time.Millisecond, StoreTimeout: 5 * time.Second}
	const slow = 900 * time.Millisecond
	late := func(t *testing.T, s *site, c *dlock.Client) {
		rival := s.near(patient)
		_, err := c.Mutex("a").TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrLost)
		h, _ := locktest.Begin(t, rival, "a").Granted(o.TTL + slow + locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	}
	t.Run("latency", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c := s.far(o)
		s.proxy.Delay(slow)
		late(t, s, c)
		s.proxy.Delay(0)
	})
	t.Run("paused clients", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c := s.far(o)
		s.plan(func(script string, n int) redistest.Action {
			if script == acquire && n == 1 {
				s.server.Do("CLIENT", "PAUSE", strconv.Itoa(int(slow/time.Millisecond)), "ALL")
			}
			return redistest.Pass
		})
		late(t, s, c)
	})
}

// The connection that carries renewals is shared with somebody who pumps large
// values through it, and the server is busy with others' too. Nothing is lost.
//
// Like other tests that keep the machine busy it does not run beside others.
func TestFault13ForeignTraffic(t *testing.T) {
	s := newSite(t)
	shared, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.server.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.Close)
	others := manyConnections(t, s.server.Addr)
	o := dlock.Options{TTL: 2 * time.Second, OnLost: func(*dlock.Hold) { t.Error("OnLost was called") }}
	c := locktest.NewClient(t, newStore(t, shared), o)
	var holds []*dlock.Hold
	for i := range 50 {
		holds = append(holds, s.lock(c, strconv.Itoa(i)))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*o.TTL)
	defer cancel()
	var pumped atomic.Int64
	value := strings.Repeat("x", 1<<20)
	var pumps []chan error
	for i, client := range []rueidis.Client{shared, shared, others, others} {
		pump := make(chan error, 1)
		pumps = append(pumps, pump)
		go func() {
			for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				key := "foreign " + strconv.Itoa(i)
				for _, answer := range client.DoMulti(context.Background(),
					client.B().Set().Key(key).Value(value).Build(), client.B().Get().Key(key).Build()) {
					if err := answer.Error(); err != nil {
						pump <- err
						return
					}
					pumped.Add(int64(len(value)))
				}
			}
			pump <- nil
		}()
	}
	for _, pump := range pumps {
		if err := <-pump; err != nil {
			t.Fatal(err)
		}
	}
	rate := float64(pumped.Load()) / time.Since(began).Seconds() / 1e6
	t.Logf("%.0f MB/s", rate)
	if rate < 10 {
		t.Errorf("only %.1f MB/s: the fault has not bitten", rate)
	}
	for _, h := range holds {
		locktest.Unlock(t, h)
	}
}
