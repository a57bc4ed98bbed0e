package cancels

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

// calls is how many are cancelled while the server is up, and as many while it is down.
var calls = locktest.Prove(150, 10_000)

func TestRedisCancels(t *testing.T)     { soak(t, startRedis(t)) }
func TestQuorumCancels(t *testing.T)    { soak(t, startQuorum(t)) }
func TestEtcdCancels(t *testing.T)      { soak(t, startEtcd(t)) }
func TestPostgresCancels(t *testing.T)  { soak(t, startPostgres(t)) }
func TestZooKeeperCancels(t *testing.T) { soak(t, startZookeeper(t)) }

const (
	// soon is when a call returns at the latest after its context has ended.
	soon = 50 * time.Millisecond

	callers = 16 // at once
	taken   = 4  // locks that somebody else holds all the time
	free    = 4  // locks that those who cancel have among themselves
)

var (
	holds   = dlock.Options{TTL: 5 * time.Minute, WaitTTL: 5 * time.Second}
	cancels = dlock.Options{TTL: 2 * time.Second, WaitTTL: 2 * time.Second}
)

// soak cancels calls while the server is up, and in each way down, and counts
// what is left of it.
func soak(t *testing.T, s *server) {
	direct := stores.OpenFor(t, s.url)
	others := locktest.NewClient(t, direct, holds)
	var held []*dlock.Hold
	for n := range taken {
		held = append(held, locktest.Lock(t, others, lockName(n)))
	}
	heart := locktest.WatchProcess(t, 2*time.Millisecond)
	kept := len(s.left())
	closed := used()

	on := stores.OpenFor(t, s.wire)
	c := locktest.NewClient(t, on, cancels)
	r := &run{client: c, heart: heart}
	r.cancel(t, "to begin with", 100)
	heal(t, c, s, kept)
	idle := used()

	r.cancel(t, "up", calls)
	for i, d := range s.downs {
		d.begin()
		r.cancel(t, d.name, calls*(i+1)/len(s.downs)-calls*i/len(s.downs))
		d.end()
		heal(t, c, s, kept)
	}
	for n := 0; n < s.forgets; n++ {
		if h, err := c.Mutex("healed").LockContext(t.Context()); err == nil {
			h.Unlock()
		}
	}
	t.Logf("all healed: %v, %v before", back(t, "when all is healed", idle, 2*calls), idle)

	if err := c.Close(); err != nil {
		t.Error(err)
	}
	on.Close()
	closed.objects = idle.objects // the handles are closed, but not forgotten
	t.Logf("closed: %v, %v before it was opened", back(t, "when all is closed", closed, 2*calls), closed)
	for _, h := range held {
		locktest.Unlock(t, h)
	}
	if err := others.Close(); err != nil {
		t.Error(err)
	}
	direct.Close()
	keeps(t, s, 0, func() {})
}

func lockName(n int) string { return fmt.Sprint("lock-", n) }

// heal waits until the client has locks again and the server keeps what it did.
func heal(t *testing.T, c *dlock.Client, s *server, kept int) {
	t.Helper()
	h, err := c.Mutex("healed").LockContext(t.Context())
	for err != nil && t.Context().Err() == nil { // it says so after a TTL without an answer
		h, err = c.Mutex("healed").LockContext(t.Context())
	}
	if err == nil {
		h.Unlock() // a busy node of a quorum may be too slow for it: what comes of it is seen by what is left
	}
	keeps(t, s, kept, func() {
		for n := 0; n < taken && s.lazy; n++ {
			c.Mutex(lockName(n)).TryLockContext(t.Context())
		}
	})
}

// keeps waits until the server keeps no more than so much.
func keeps(t *testing.T, s *server, most int, look func()) {
	t.Helper()
	for deadline := time.Now().Add(locktest.Patience); ; time.Sleep(100 * time.Millisecond) {
		look()
		left := s.left()
		if len(left) <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are left at the server, and there were %d: %q", len(left), most, left[:min(len(left), 20)])
		}
	}
}

// run is calls that are cancelled.
type run struct {
	client *dlock.Client
	heart  *locktest.Pulse
}

// ended is a call that returned after its context had ended.
type ended struct{ at, returned time.Time }

func (e ended) late() time.Duration { return e.returned.Sub(e.at) }

// cancel has so many calls return because their contexts end.
func (r *run) cancel(t *testing.T, server string, n int) {
	t.Helper()
	var mu sync.Mutex
	var all []ended
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for {
				e := r.call(t)
				mu.Lock()
				if e != nil && len(all) < n {
					all = append(all, *e)
				}
				enough := len(all) == n
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	calling.Wait()
	slices.SortFunc(all, func(a, b ended) int { return int(a.late() - b.late()) })
	worst := all[n-1]
	t.Logf("%s: %d cancels returned after %v in the median, %v at most", server, n,
		all[n/2].late().Round(time.Microsecond), worst.late().Round(time.Microsecond))
	for _, e := range all {
		if e.late() <= soon {
			continue
		}
		if stood := r.heart.Stopped(e.at, e.returned); e.late()-stood > soon {
			t.Errorf("%s: a call returned %v after its cancel, of which this process did not run for %v", server, e.late(), stood)
		}
	}
}

// call is one call whose context ends at a random moment; nil, if it returned
// before that.
func (r *run) call(t *testing.T) *ended {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var at time.Time
	timer := time.AfterFunc(rand.N(20*time.Millisecond), func() {
		at = time.Now()
		cancel()
	})
	lock := r.client.RWMutex(lockName(rand.N(taken + free)))
	take := lock.LockContext
	if rand.N(3) == 0 {
		take = lock.RLockContext
	}
	h, err := take(ctx)
	returned := time.Now()
	if h != nil {
		h.Unlock() // what comes of it is seen by what is left
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("LockContext: %v", err)
	}
	if timer.Stop() {
		return nil
	}
	<-ctx.Done()
	if returned.Before(at) {
		return nil
	}
	return &ended{at, returned}
}
