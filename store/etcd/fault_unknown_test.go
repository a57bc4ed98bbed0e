package etcd_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

var (
	shortLease = dlock.Options{TTL: 3 * time.Second}
	longLease  = dlock.Options{TTL: 6 * time.Second, WaitTTL: 6 * time.Second}
)

// giveUp waits for a lock until it loses patience.
func giveUp(t *testing.T, c *dlock.Client, name string) {
	t.Helper()
	const patience = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := locktest.BeginWith(t, ctx, c, name).Failed(patience + 50*time.Millisecond + locktest.Late)
	locktest.MustBe(t, err, context.DeadlineExceeded)
}

// giveUpWhen begins a call whose context ends when the fault has bitten: a moment later
// the client may have given back what the call got.
func giveUpWhen(t *testing.T, c *dlock.Client, name string, bitten func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := locktest.BeginWith(t, ctx, c, name)
	locktest.Poll(t, "the fault has bitten", locktest.Patience, bitten)
	cancel()
	_, err := call.Failed(locktest.Late)
	locktest.MustBe(t, err, context.Canceled)
}

// buried reports whether an id is buried.
func (s *site) buried() bool {
	s.t.Helper()
	for _, key := range s.keys() {
		if strings.Contains(key, "/!/") {
			return true
		}
	}
	return false
}

// The server has granted or queued, its answer is lost and the caller has gone:
// the client gives back by itself, with the id buried, as soon as the server
// answers, and not when the lease is over.
func TestFault03AcquireReplyLostCallerGone(t *testing.T) {
	t.Parallel()
	o := dlock.Options{TTL: 4 * time.Second, StoreTimeout: 500 * time.Millisecond}
	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, rival := s.far(o), s.near(o)
		s.wire.on("Txn", mute, 1)
		giveUpWhen(t, c, "a", func() bool { return len(s.state("a").Holders) == 1 })
		h, _ := locktest.Begin(t, rival, "a").Granted(o.StoreTimeout + locktest.Soon)
		if !s.buried() {
			t.Error("the id was not buried")
		}
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, holder := s.far(o), s.near(o)
		h := locktest.Lock(t, holder, "a")
		s.wire.on("Txn", mute, 2) // the first looks, the second takes a place
		giveUpWhen(t, c, "a", func() bool { return len(s.state("a").Queue) == 1 })
		locktest.Poll(t, "the place is given up", o.StoreTimeout+locktest.Soon, func() bool { return len(s.state("a").Queue) == 0 })
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, rival := s.far(o), s.near(o)
		s.wire.plan(func(method string, n int) action {
			switch {
			case method == "LeaseGrant" && n == 1, method == "LeaseKeepAlive":
				return pass
			case method == "Txn" && n == 1:
				return cutReply
			}
			return cutAsk
		})
		giveUp(t, c, "a")
		waits := locktest.Begin(t, rival, "a")
		s.queued("a", 1)
		locktest.Poll(t, "a few tries on a dead wire", locktest.Patience, func() bool { return s.wire.requests("LeaseGrant") >= 4 })
		waits.Waits()
		s.wire.on("", pass)
		h, _ := waits.Granted(locktest.Soon)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
}

// The caller leaves while its request is on the way. The call returns at once,
// and whenever the grant comes, it is given back.
func TestFault69CancelledDuringTheAcquireCall(t *testing.T) {
	t.Parallel()
	o := longLease
	o.StoreTimeout = 2 * time.Second
	t.Run("answer is late", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, rival := s.far(o), s.near(o)
		s.wire.on("Txn", slow, 1)
		giveUpWhen(t, c, "a", func() bool { return len(s.state("a").Holders) == 1 })
		h, _ := locktest.Begin(t, rival, "a").Granted(slowness + locktest.Soon)
		if !s.buried() {
			t.Error("the id of a request that was cut was not buried")
		}
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("request is late", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c, rival := s.far(o), s.near(o)
		s.wire.on("Txn", hold, 1)
		giveUp(t, c, "a")
		locktest.Poll(t, "a release that overtakes it", locktest.Patience, s.buried)
		s.wire.arrive()
		h, _ := locktest.Begin(t, rival, "a").Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
}

// The same for a request that would take a place at once, as the client has a
// lease for places already.
func TestFault69CancelledWhileAPlaceIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := longLease
	o.StoreTimeout = 2 * time.Second
	c, holder := s.far(o), s.near(o)
	b, a := locktest.Lock(t, holder, "b"), locktest.Lock(t, holder, "a")
	giveUp(t, c, "a") // after which it takes a place at once
	s.queued("a", 0)
	s.wire.on("Txn", hold, 1)
	giveUp(t, c, "a")
	locktest.Poll(t, "a release that overtakes it", locktest.Patience, s.buried)
	s.wire.arrive()
	if queue := s.state("a").Queue; len(queue) > 0 {
		t.Fatalf("the late request is in: %+v", queue)
	}
	locktest.Unlock(t, a)
	locktest.Unlock(t, b)
	s.over("a", o)
}

// Many callers lose patience while they wait, at moments of chance. Each returns
// at once, and nothing is left of them: no place, no watch, no lease, and nothing
// that the client would have to wait for.
func TestFault68CancelWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	member := s.cluster.Members[0]
	holder := s.near(longLease)
	on := open(t, s.cluster.URL())
	c := locktest.NewClient(t, on, shortLease)
	h := locktest.Lock(t, holder, "a")
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond+rand.N(time.Second))
			defer cancel()
			deadline, _ := ctx.Deadline()
			if i%4 == 0 {
				ctx = dlock.WithOwner(ctx, dlock.NewOwner()) // past the line
			}
			take := c.RWMutex("a").LockContext
			if i%2 == 0 {
				take = c.RWMutex("a").RLockContext
			}
			_, err := take(ctx)
			if after := time.Since(deadline); !errors.Is(err, context.DeadlineExceeded) || after > 50*time.Millisecond+locktest.Late {
				t.Errorf("returned %v after the deadline: %v", after, err)
			}
		})
	}
	locktest.Poll(t, "a queue", locktest.Patience, func() bool { return len(s.state("a").Queue) > 5 && member.Watchers() > 0 })
	calls.Wait()
	locktest.Poll(t, "no place left", locktest.Soon, func() bool { return len(s.state("a").Queue) == 0 })
	locktest.Poll(t, "no watch left", time.Second+locktest.Soon, func() bool { return member.Watchers() == 0 })
	s.holds(h)
	locktest.Unlock(t, h)
	s.over("a", shortLease)
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	on.Close()
	if took := time.Since(began); took > locktest.Late {
		t.Errorf("Close took %v", took)
	}
	locktest.Poll(t, "no lease left but the holder's", shortLease.TTL+lag, func() bool { return s.leases() <= 1 })
}
