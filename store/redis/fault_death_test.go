package redis_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// mortal is the lease of those who die, and of those who wait for them.
var mortal = dlock.Options{TTL: 2 * time.Second}

// startWaiter starts a child that waits for the lock.
func (s *site) startWaiter(job, name string) *locktest.Child {
	s.t.Helper()
	before := len(s.state(name).Queue)
	c := locktest.StartChild(s.t, job, s.server.URL(), name, mortal.TTL)
	s.queued(name, before+1)
	return c
}

// A holder is killed and nobody says so. Whoever waits gets in when the lease is
// over, not before and hardly later.
func TestFault48HolderKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.near(dlock.Options{TTL: 4 * mortal.TTL, WaitTTL: 4 * mortal.TTL}) // asks only when it is told to
	holder := locktest.StartChild(t, "hold", s.server.URL(), "a", mortal.TTL)
	token := holder.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	holder.Kill()
	asked := time.Now()
	left := s.state("a").Holders[0].Remaining
	answered := time.Now()
	waits.Waits()
	h, at := waits.Granted(locktest.Patience)
	if early := asked.Add(left).Sub(at); early > time.Millisecond {
		t.Errorf("granted %v before the lease was over", early)
	}
	if after := at.Sub(answered.Add(left)); after > 50*time.Millisecond+locktest.Late {
		t.Errorf("granted %v after the lease was over", after)
	}
	if n, _ := strconv.ParseUint(token, 10, 64); n == 0 || h.Token() <= n {
		t.Errorf("the token is %d after %s", h.Token(), token)
	}
	locktest.Unlock(t, h)
}

// The process at the head of the queue is killed. The next in line get in within
// its lease, in their order.
func TestFault49HeadOfQueueKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, second, third := s.near(mortal), s.near(mortal), s.near(mortal)
	h := s.lock(holder, "a")
	head := s.startWaiter("hold", "a")
	waits2 := locktest.Begin(t, second, "a")
	s.queued("a", 2)
	waits3 := locktest.Begin(t, third, "a")
	s.queued("a", 3)
	head.Kill()
	released := time.Now()
	locktest.Unlock(t, h)
	h2, at := waits2.Granted(locktest.Patience)
	if after := at.Sub(released); after > mortal.TTL+50*time.Millisecond+locktest.Late {
		t.Errorf("granted %v after the release, with a lease of %v", after, mortal.TTL)
	}
	waits3.Waits()
	locktest.Unlock(t, h2)
	h3, _ := waits3.Granted(locktest.Soon)
	locktest.Unlock(t, h3)
	s.over("a", mortal)
}

// The waiter who is woken dies with the baton in its hand. The next one gets in
// when its lease is over.
func TestFault50WokenWaiterKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, c := s.near(mortal), s.near(mortal)
	h := s.lock(holder, "a")
	woken := s.startWaiter("woken", "a")
	woken.Says("queued")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 2)
	released := time.Now()
	locktest.Unlock(t, h)
	woken.Says("woken")
	woken.Kill()
	next, at := waits.Granted(locktest.Patience)
	switch after := at.Sub(released); {
	case after < mortal.TTL-time.Millisecond:
		t.Errorf("granted %v after the release: the fault has not bitten", after)
	case after > mortal.TTL+50*time.Millisecond+locktest.Late:
		t.Errorf("granted %v after the release, with a lease of %v", after, mortal.TTL)
	}
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", mortal)
}

// A process is killed while it holds many locks. All are free when their leases
// are over, and the next holders' tokens are greater.
func TestFault78ProcessKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const locks = 5
	var tokens [locks]uint64
	var children []*locktest.Child
	for i := range locks {
		children = append(children, locktest.StartChild(t, "hold", s.server.URL(), strconv.Itoa(i), mortal.TTL))
	}
	for i, c := range children {
		tokens[i], _ = strconv.ParseUint(c.Says("held"), 10, 64)
	}
	c := s.near(mortal)
	for i := range locks {
		_, err := c.Mutex(strconv.Itoa(i)).TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrHeld)
	}
	for _, c := range children {
		c.Kill()
	}
	for i := range locks {
		h, _ := locktest.Begin(t, c, strconv.Itoa(i)).Granted(mortal.TTL + locktest.Late)
		if h.Token() <= tokens[i] || tokens[i] == 0 {
			t.Errorf("lock %d: token %d after %d", i, h.Token(), tokens[i])
		}
		locktest.Unlock(t, h)
	}
	s.over("0", mortal)
}

// Of two readers who renew their holds one is killed, and later the other. Neither
// is kept alive by the other, and a writer who waits gets in when the last lease is over.
func TestFault81ReaderKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.near(dlock.Options{TTL: 4 * mortal.TTL, WaitTTL: 4 * mortal.TTL}) // asks only when it is told to
	first := locktest.StartChild(t, "read", s.server.URL(), "a", mortal.TTL)
	first.Says("held")
	last := locktest.StartChild(t, "read", s.server.URL(), "a", mortal.TTL)
	last.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	first.Kill()
	locktest.Poll(t, "the end of the dead reader's lease", mortal.TTL+50*time.Millisecond+locktest.Late, func() bool {
		return len(s.state("a").Holders) == 1
	})
	waits.Waits()
	last.Kill()
	asked := time.Now()
	left := s.state("a").Holders[0].Remaining
	answered := time.Now()
	h, at := waits.Granted(locktest.Patience)
	if early := asked.Add(left).Sub(at); early > time.Millisecond {
		t.Errorf("granted %v before the lease was over", early)
	}
	if after := at.Sub(answered.Add(left)); after > 50*time.Millisecond+locktest.Late {
		t.Errorf("granted %v after the lease was over", after)
	}
	locktest.Unlock(t, h)
}
