package etcd_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// lag is how much longer than its time the server may keep a lease: it looks
// every half second, and then has to agree on the end with the other members.
const lag = time.Second

// spare is how much longer than WaitTTL the lease of a place is.
const spare = time.Second

// mortal is the lease of those who die, and of those who wait for them.
var mortal = dlock.Options{TTL: 3 * time.Second}

// startWaiter starts a child that waits for the lock.
func (s *site) startWaiter(job, name string) *locktest.Child {
	s.t.Helper()
	before := len(s.state(name).Queue)
	c := locktest.StartChild(s.t, job, s.cluster.URL(), name, mortal.TTL)
	s.queued(name, before+1)
	return c
}

// A holder is killed and nobody says so. Whoever waits gets in when the lease is
// over, not before and up to a second later.
func TestFault48HolderKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	c := s.near(longLease)
	holder := locktest.StartChild(t, "hold", s.cluster.URL(), "a", mortal.TTL)
	token := holder.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	holder.Kill()
	killed := time.Now()
	left := s.state("a").Holders[0].Remaining // in whole seconds, never more than there are
	waits.Waits()
	h, at := waits.Granted(locktest.Patience)
	if early := killed.Add(left).Sub(at); early > 0 {
		t.Errorf("granted %v before the lease was over", early)
	}
	if after := at.Sub(killed); after > mortal.TTL+lag+locktest.Late {
		t.Errorf("granted %v after the death, with a lease of %v", after, mortal.TTL)
	}
	if n, _ := strconv.ParseUint(token, 10, 64); n == 0 || h.Token() <= n {
		t.Errorf("the token is %d after %s", h.Token(), token)
	}
	locktest.Unlock(t, h)
	s.over("a", longLease)
}

// The process at the head of the queue is killed. The next in line get in when
// the lease of its place is over, in their order.
func TestFault49HeadOfQueueKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	holder, second, third := s.near(mortal), s.near(mortal), s.near(mortal)
	h := locktest.Lock(t, holder, "a")
	head := s.startWaiter("hold", "a")
	waits2 := locktest.Begin(t, second, "a")
	s.queued("a", 2)
	waits3 := locktest.Begin(t, third, "a")
	s.queued("a", 3)
	head.Kill()
	released := time.Now()
	locktest.Unlock(t, h)
	h2, at := waits2.Granted(locktest.Patience)
	if after := at.Sub(released); after > mortal.TTL+spare+lag+locktest.Late {
		t.Errorf("granted %v after the release, with a lease of %v", after, mortal.TTL)
	}
	waits3.Waits()
	locktest.Unlock(t, h2)
	h3, _ := waits3.Granted(locktest.Soon)
	locktest.Unlock(t, h3)
	s.over("a", mortal)
}

// The waiter who is woken dies with the baton in its hand. The next one gets in
// when the lease of its place is over.
func TestFault50WokenWaiterKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	holder, c := s.near(mortal), s.near(mortal)
	h := locktest.Lock(t, holder, "a")
	woken := s.startWaiter("woken", "a")
	woken.Says("queued")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 2)
	released := time.Now()
	locktest.Unlock(t, h)
	woken.Says("woken")
	woken.Kill()
	killed := time.Now()
	next, at := waits.Granted(locktest.Patience)
	if after := at.Sub(released); after < mortal.TTL {
		t.Errorf("granted %v after the release: the fault has not bitten", after)
	}
	if after := at.Sub(killed); after > mortal.TTL+spare+lag+locktest.Late {
		t.Errorf("granted %v after the death, with a lease of %v", after, mortal.TTL)
	}
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", mortal)
}

// A process is killed while it holds many locks. All are free when their lease
// is over, and the next holders' tokens are greater.
func TestFault78ProcessKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	var tokens [locktest.Hoard]uint64
	child := locktest.StartChild(t, "hoard", s.cluster.URL(), "a", mortal.TTL)
	for i := range tokens {
		tokens[i], _ = strconv.ParseUint(child.Says("held"), 10, 64)
	}
	c := s.near(mortal)
	for i := range tokens {
		_, err := c.Mutex("a " + strconv.Itoa(i)).TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrHeld)
	}
	child.Kill()
	var waits [locktest.Hoard]*locktest.Waiting
	for i := range tokens {
		waits[i] = locktest.Begin(t, c, "a "+strconv.Itoa(i))
	}
	within := time.Now().Add(mortal.TTL + lag + locktest.Late)
	for i := range tokens {
		h, _ := waits[i].Granted(time.Until(within))
		if h.Token() <= tokens[i] || tokens[i] == 0 {
			t.Errorf("lock %d: token %d after %d", i, h.Token(), tokens[i])
		}
		locktest.Unlock(t, h)
	}
	s.over("a 0", mortal)
}

// Of two readers who renew their holds one is killed, and later the other. Neither
// is kept alive by the other, and a writer who waits gets in when the last lease is over.
func TestFault81ReaderKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	c := s.near(longLease)
	first := locktest.StartChild(t, "read", s.cluster.URL(), "a", mortal.TTL)
	first.Says("held")
	last := locktest.StartChild(t, "read", s.cluster.URL(), "a", mortal.TTL)
	last.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	first.Kill()
	locktest.Poll(t, "the end of the dead reader's lease", mortal.TTL+lag+locktest.Late, func() bool {
		return len(s.state("a").Holders) == 1
	})
	waits.Waits()
	last.Kill()
	killed := time.Now()
	left := s.state("a").Holders[0].Remaining // in whole seconds, never more than there are
	h, at := waits.Granted(locktest.Patience)
	if early := killed.Add(left).Sub(at); early > 0 {
		t.Errorf("granted %v before the lease was over", early)
	}
	if after := at.Sub(killed); after > mortal.TTL+lag+locktest.Late {
		t.Errorf("granted %v after the death, with a lease of %v", after, mortal.TTL)
	}
	locktest.Unlock(t, h)
	s.over("a", longLease)
}
