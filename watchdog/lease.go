package watchdog

import (
	"math"
	"sync/atomic"
	"time"
)

// Terms says how long a lease is valid and what a renewal is worth.
type Terms struct {
	// Deadline is when the lease ends unless it is renewed. It must carry a
	// monotonic reading (come from time.Now and Add); otherwise it is only as
	// good as the wall clock at the moment of Keep. A Deadline in the past
	// makes a lease that is declared lost at once, on another goroutine.
	Deadline time.Time

	// Validity is what a confirmed renewal is worth, counted from the moment
	// before Renew was called. 0: the lease is never renewed.
	Validity time.Duration

	// Last is a moment that neither Deadline nor any renewal goes beyond;
	// renewing stops when nothing can be gained. Zero: no cap.
	Last time.Time

	// Urgent: renew at once rather than after a third.
	Urgent bool
}

// Lease is one lease. Its zero value is ready for Keep; it is meant to be a
// field of the caller's struct and must not be copied. Its methods are safe for
// concurrent use and never block on Renew or Expired of another goroutine.
//
// A lease is armed by Keep until it is ended by End or Disarm, or declared lost.
// For each arming exactly one of two things happens: End or Disarm returns
// true, or Expired is called. (Neither, if it is left armed for ever after Close.)
type Lease struct {
	// Value is the caller's, for Renew and Expired to find what the lease
	// belongs to. The watchdog never touches it. It must not change while a
	// Renew call may see it, so not before the watchdog is closed.
	Value any

	home atomic.Pointer[shard] // set by the first Keep, for good

	// deadline is 0 unless armed. It is written under home.mu and read
	// without, by Valid.
	deadline atomic.Int64

	// The rest is guarded by home.mu.
	validity int64
	last     int64  // math.MaxInt64: no cap
	gen      uint64 // changes with each Keep, End and loss
	pos      int    // 1 + index in the heap of deadlines, 0: not in it

	in         *leaseList // a slot, or those that are due
	prev, next *Lease
	class      uint8
	busy       bool // a Renew call has it
	again      bool // was due while busy with an earlier generation
}

// Keep arms l on the given terms. Keep of an armed lease replaces its terms
// and begins a new generation, even if its old deadline has passed undeclared:
// Check first where that matters. The result of a renewal sent before Keep is
// ignored. Keep does not call back and does not block, so the caller may hold
// locks. After Close the lease is valid until its deadline and is neither
// renewed nor declared lost by the watchdog. Keep panics if another watchdog
// has kept l before.
func (w *Watchdog) Keep(l *Lease, t Terms) {
	sh := l.home.Load()
	if sh == nil {
		sh = &w.shards[w.next.Add(1)%shardCount]
		if !l.home.CompareAndSwap(nil, sh) {
			sh = l.home.Load()
		}
	}
	if sh.w != w {
		panic("watchdog: lease belongs to another watchdog")
	}
	deadline, last := w.moment(t.Deadline), int64(math.MaxInt64)
	if !t.Last.IsZero() {
		last = w.moment(t.Last)
		deadline = min(deadline, last)
	}
	validity := max(0, int64(t.Validity))

	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.gen++
	l.again = false
	l.in.remove(l)
	l.validity, l.last, l.class = validity, last, classOf(validity)
	l.deadline.Store(deadline)
	if sh.closed {
		return
	}
	sh.deadlines.set(l, deadline)
	sh.arm(sh.deadlines[0].key)
	if l.gainful(deadline) {
		now := w.now()
		due := now
		if !t.Urgent {
			due += firstWait(deadline-now, validity)
		}
		sh.schedule(l, now, due)
	}
}

// gainful reports whether a renewal can carry the deadline further.
func (l *Lease) gainful(deadline int64) bool { return l.validity > 0 && deadline < l.last }

// Valid reports whether l is armed, neither ended nor lost, and its deadline
// still ahead. It reads the monotonic clock, calls nothing back, takes no lock
// and declares nothing: the caller may hold locks.
func (l *Lease) Valid() bool {
	sh := l.home.Load()
	if sh == nil {
		return false
	}
	d := l.deadline.Load()
	return d != 0 && sh.w.now() < d
}

// Check reports what Valid reports, but a deadline that has passed is declared
// now: Expired then runs on this goroutine before Check returns. The caller
// must not hold a lock that Expired takes.
func (l *Lease) Check() bool {
	if l.Valid() {
		return true
	}
	if sh := l.home.Load(); sh != nil {
		sh.declare(l)
	}
	return false
}

// End disarms l and reports true if it was armed and its deadline still ahead;
// from then on the watchdog does nothing with it, though a Renew call under way
// may still have it. If the deadline has passed undeclared, End declares it:
// Expired runs on this goroutine and End returns false. It also returns false
// for a lease that is not armed. The caller must not hold a lock that Expired
// takes; see Disarm.
func (l *Lease) End() bool {
	if l.Disarm() {
		return true
	}
	if sh := l.home.Load(); sh != nil {
		sh.declare(l)
	}
	return false
}

// Disarm is End without the callback, so the caller may hold locks: it returns
// false for a lease whose deadline has passed and leaves it to be declared lost
// by the watchdog's timer, by Check or by End.
func (l *Lease) Disarm() (ended bool) {
	sh := l.home.Load()
	if sh == nil {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := l.deadline.Load()
	if d == 0 || sh.w.now() >= d {
		return false
	}
	sh.drop(l)
	return true
}

// Deadline returns the moment until which l is valid as far as is confirmed,
// with a monotonic reading, or the zero Time if l is not armed.
func (l *Lease) Deadline() time.Time {
	sh := l.home.Load()
	if sh == nil {
		return time.Time{}
	}
	d := l.deadline.Load()
	if d == 0 {
		return time.Time{}
	}
	return sh.w.base.Add(time.Duration(d))
}

// leaseList is a list through the leases themselves: a lease is in one at most,
// leaves it in constant time, and joining allocates nothing.
type leaseList struct {
	head, tail *Lease
	n          int
}

func (s *leaseList) push(l *Lease) {
	l.in, l.prev, l.next = s, s.tail, nil
	if s.tail == nil {
		s.head = l
	} else {
		s.tail.next = l
	}
	s.tail = l
	s.n++
}

// remove takes l out of s; s is nil if l is in no list.
func (s *leaseList) remove(l *Lease) {
	if s == nil {
		return
	}
	if l.prev == nil {
		s.head = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		s.tail = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.in, l.prev, l.next = nil, nil, nil
	s.n--
}

func (s *leaseList) pop() *Lease {
	l := s.head
	if l != nil {
		s.remove(l)
	}
	return l
}
