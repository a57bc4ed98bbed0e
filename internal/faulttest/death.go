package faulttest

import (
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// holderKilled: a holder is killed and nobody says so. The waiter gets in when the lease is over,
// not before and hardly later.
func (s *Site) holderKilled() {
	t := s.T
	c := s.client(s.patient())
	holder := s.child("hold", "a")
	token := holder.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	holder.Kill()
	atItsEnd := s.endOfLease("a")
	waits.Waits()
	h, at := waits.Granted(locktest.Patience)
	atItsEnd(at)
	if n, _ := strconv.ParseUint(token, 10, 64); n == 0 || h.Token() <= n {
		t.Errorf("the token is %d after %s", h.Token(), token)
	}
	locktest.Unlock(t, h)
	s.over("a", s.patient())
}

// headOfQueueKilled: the process at the head of the queue is killed. The next in line get in when
// its place is over, in their order.
func (s *Site) headOfQueueKilled() {
	t := s.T
	holder, second, third := s.client(s.mortal()), s.client(s.mortal()), s.client(s.mortal())
	h := locktest.Lock(t, holder, "a")
	head := s.waiter("hold", "a")
	waits2 := locktest.Begin(t, second, "a")
	s.queued("a", 2)
	waits3 := locktest.Begin(t, third, "a")
	s.queued("a", 3)
	head.Kill()
	released := time.Now()
	locktest.Unlock(t, h)
	h2, at := waits2.Granted(locktest.Patience)
	if after := at.Sub(released); after > s.Lease+s.Spare+s.Lag+locktest.Late {
		t.Errorf("granted %v after the release, with a lease of %v", after, s.Lease)
	}
	waits3.Waits()
	locktest.Unlock(t, h2)
	h3, _ := waits3.Granted(locktest.Soon)
	locktest.Unlock(t, h3)
	s.over("a", s.mortal())
}

// wokenWaiterKilled: the waiter that is woken dies before it can use its grant. The next one gets
// in when that grant's lease is over.
func (s *Site) wokenWaiterKilled() {
	t := s.T
	holder, c := s.client(s.mortal()), s.client(s.mortal())
	h := locktest.Lock(t, holder, "a")
	woken := s.waiter("woken", "a")
	woken.Says("queued")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 2)
	released := time.Now()
	locktest.Unlock(t, h)
	woken.Says("woken")
	woken.Kill()
	from := released
	if s.Spare > 0 {
		from = time.Now()
	}
	next, at := waits.Granted(locktest.Patience)
	if after := at.Sub(released); after < s.Lease-s.rounding() {
		t.Errorf("granted %v after the release: the fault has not bitten", after)
	}
	if after := at.Sub(from); after > s.Lease+s.Spare+s.Lag+locktest.Late {
		t.Errorf("granted after %v, with a lease of %v", after, s.Lease)
	}
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", s.mortal())
}

// processKilled: a process is killed while it holds many locks. All are free when their lease is
// over, and the next holders' tokens are greater.
func (s *Site) processKilled() {
	t := s.T
	var tokens [locktest.Hoard]uint64
	child := s.child("hoard", "a")
	for i := range tokens {
		tokens[i], _ = strconv.ParseUint(child.Says("held"), 10, 64)
	}
	c := s.client(s.mortal())
	for i := range tokens {
		_, err := c.Mutex("a " + strconv.Itoa(i)).TryLockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrHeld)
	}
	child.Kill()
	var waits [locktest.Hoard]*locktest.Waiting
	for i := range tokens {
		waits[i] = locktest.Begin(t, c, "a "+strconv.Itoa(i))
	}
	within := time.Now().Add(s.Lease + s.Lag + locktest.Late)
	for i := range tokens {
		h, _ := waits[i].Granted(time.Until(within))
		if h.Token() <= tokens[i] || tokens[i] == 0 {
			t.Errorf("lock %d: token %d after %d", i, h.Token(), tokens[i])
		}
		locktest.Unlock(t, h)
	}
	s.over("a 0", s.mortal())
}

// readerKilled: of two readers that renew their holds one is killed, and later the other. Neither
// is kept alive by the other, and a writer that waits gets in when the last lease is over.
func (s *Site) readerKilled() {
	t := s.T
	c := s.client(s.patient())
	first := s.child("read", "a")
	first.Says("held")
	last := s.child("read", "a")
	last.Says("held")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	first.Kill()
	locktest.Poll(t, "the end of the dead reader's lease", s.Lease+s.Lag+locktest.Late, func() bool {
		return len(s.state("a").Holders) == 1
	})
	waits.Waits()
	last.Kill()
	atItsEnd := s.endOfLease("a")
	h, at := waits.Granted(locktest.Patience)
	atItsEnd(at)
	locktest.Unlock(t, h)
	s.over("a", s.patient())
}

// forcedRelease: a hold is broken by an operator. The waiter is woken at once, with a token that
// fences the old holder off, and the old holder is told by its next renewal.
func (s *Site) forcedRelease() {
	t := s.T
	o := dlock.Options{TTL: 6 * time.Second, WaitTTL: 6 * time.Second}
	c := s.client(o)
	lost := make(chan *dlock.Hold, 10)
	o.OnLost = func(h *dlock.Hold) { lost <- h }
	holder := s.client(o)
	locktest.HandOver(t, s.Direct, holder, c, "a", s.listens)
	h := locktest.Lock(t, holder, "a")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	s.listens()
	began := time.Now()
	if n, err := s.Direct.Break(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("%d holds broken, %v", n, err)
	}
	next, at := waits.Granted(locktest.Soon)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	t.Log("woken after", at.Sub(began))
	select {
	case <-h.Done():
		if after := time.Since(began); after > o.TTL/3+locktest.Late {
			t.Errorf("told after %v", after)
		}
	case <-time.After(locktest.Patience):
		t.Fatal("the holder is not told")
	}
	if got := <-lost; got != h {
		t.Error("OnLost was called with another hold")
	}
	locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", o)
	if len(lost) > 0 {
		t.Error("OnLost was called twice")
	}
}
