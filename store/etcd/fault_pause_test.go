package etcd_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// paused is the lease of children that are paused for longer than that.
var paused = dlock.Options{TTL: 2 * time.Second}

// expired is when a lease that nobody renews is over at the servers at the
// latest, from its last renewal: they look every half second.
func expired(lease time.Duration) time.Duration {
	return lease + 500*time.Millisecond + locktest.Late
}

// tokenOf reads what a child says of its hold.
func tokenOf(t *testing.T, said string) uint64 {
	t.Helper()
	token, err := strconv.ParseUint(said, 10, 64)
	if err != nil || token == 0 {
		t.Fatalf("the child says that its token is %q", said)
	}
	return token
}

// A holder is stopped for longer than its lease. The next one has a greater
// token, by which a resource can tell them apart, and the first says that it has
// lost the lock as soon as it goes on, and takes nothing from the second.
func TestFault57HolderPaused(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	rival := s.near(dlock.Options{TTL: 8 * time.Second})
	holder := locktest.StartChild(t, "hold", s.cluster.URL(), "a", paused.TTL)
	token := tokenOf(t, holder.Says("held"))
	waits := locktest.Begin(t, rival, "a")
	s.queued("a", 1)
	holder.Pause()
	h, _ := waits.Granted(expired(paused.TTL) + locktest.Soon)
	if h.Token() <= token {
		t.Errorf("token %d after %d", h.Token(), token)
	}
	resumed := time.Now()
	holder.Resume()
	lost, err := strconv.ParseInt(holder.Says("lost"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if after := time.Unix(0, lost).Sub(resumed); after > locktest.Late {
		t.Errorf("the holder knew %v after it went on", after)
	}
	s.holds(h)
	locktest.Unlock(t, h)
	s.over("a", paused)
}

// A waiter is stopped until its place is gone. Who comes after it is not kept
// waiting, and when it goes on it waits again, at the end of the queue.
func TestFault38PausedWaiterLosesItsPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	patient := dlock.Options{TTL: 8 * time.Second}
	holder, rival := s.near(patient), s.near(patient)
	h := locktest.Lock(t, holder, "a")
	waiter := locktest.StartChild(t, "hold", s.cluster.URL(), "a", paused.TTL)
	s.queued("a", 1)
	waiter.Pause()
	locktest.Poll(t, "the place is gone", expired(paused.TTL)+locktest.Soon, func() bool { return len(s.state("a").Queue) == 0 })
	waits := locktest.Begin(t, rival, "a")
	s.queued("a", 1)
	waiter.Resume()
	s.queued("a", 2)
	locktest.Unlock(t, h)
	second, _ := waits.Granted(locktest.Soon)
	s.holds(second)
	locktest.Unlock(t, second)
	if token := tokenOf(t, waiter.Says("held")); token <= second.Token() {
		t.Errorf("token %d after %d", token, second.Token())
	}
	waiter.Kill()
}

// A waiter is stopped, and granted meanwhile by the one behind it. When it goes
// on, its watch tells it of that grant; but its lease is over and somebody else
// holds the lock, so it waits again.
func TestFault38PausedWaiterMissesItsGrant(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	patient := dlock.Options{TTL: 8 * time.Second}
	holder, rival := s.near(patient), s.near(patient)
	h := locktest.Lock(t, holder, "a")
	waiter := locktest.StartChild(t, "hold", s.cluster.URL(), "a", paused.TTL)
	s.queued("a", 1)
	waiter.Pause()
	waits := locktest.Begin(t, rival, "a")
	s.queued("a", 2)
	locktest.Unlock(t, h)
	var missed uint64 // the token of the grant that nobody uses
	locktest.Poll(t, "the stopped waiter is granted", locktest.Patience, func() bool {
		state := s.state("a") // which grants what is due, as the rival's next request does
		if len(state.Holders) == 1 && len(state.Queue) == 1 {
			missed = state.Holders[0].Token
		}
		return missed != 0
	})
	waits.Waits()
	second, _ := waits.Granted(expired(paused.TTL) + locktest.Soon)
	if second.Token() <= missed {
		t.Errorf("token %d after %d", second.Token(), missed)
	}
	waiter.Resume()
	s.queued("a", 1)
	s.holds(second)
	locktest.Unlock(t, second)
	if token := tokenOf(t, waiter.Says("held")); token <= second.Token() {
		t.Errorf("token %d after %d", token, second.Token())
	}
	waiter.Kill()
}

// The server has granted, and its answer arrives when the lease is over. It is
// not returned as a hold: a try says so and a wait goes on, and each gives back
// what it had been granted.
func TestFault58GrantArrivesLate(t *testing.T) {
	t.Parallel()
	o := dlock.Options{TTL: slowness * 9 / 10, StoreTimeout: 3 * slowness}
	t.Run("try", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c := s.far(o)
		s.wire.on("Txn", slow, 1)
		_, err := c.Mutex("a").TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrLost)
		h, _ := locktest.Begin(t, s.near(dlock.Options{TTL: 8 * time.Second}), "a").Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
		s.over("a", o)
	})
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 1)
		c := s.far(o)
		s.wire.on("Txn", slow, 1)
		mutex := c.Mutex("a")
		mutex.Lock()
		if n := s.wire.requests("Txn"); n < 2 {
			t.Errorf("%d requests: the late grant was taken", n)
		}
		if n := len(s.state("a").Holders); n != 1 {
			t.Errorf("%d holders", n)
		}
		mutex.Unlock()
		s.over("a", o)
	})
}
