package watchdog

import (
	"sync/atomic"
	"time"
)

// Terms says how long a lease is valid and how it is renewed. The times must
// have a monotonic reading, as times that come from time.Now and Add have. A
// time without one is only as good as the wall clock at the moment of Keep.
type Terms struct {
	// Deadline is the moment at which the lease ends unless it is renewed. A
	// lease with a Deadline in the past is declared lost at once, on another
	// goroutine.
	Deadline time.Time

	// Validity is how long a renewed lease is valid, counted from the moment
	// before Renew was called. 0: the lease is never renewed. The first
	// renewal is sent when a third of the time from Keep to Deadline has
	// passed, and not before it can move the deadline by a third of Validity.
	Validity time.Duration

	// Last caps the deadline: no renewal moves the deadline beyond Last, and
	// a lease that reaches Last is lost by CapReached. Zero: no cap.
	Last time.Time

	// Now is the result of a call of time.Now that the caller has just made.
	// It saves Keep a call of its own. Zero: Keep calls time.Now.
	Now time.Time
}

// Lease is one lease of a watchdog. Its zero value is ready for Keep. It is
// meant to be a field of the caller's struct and must not be copied. All methods
// may be called at any time from any goroutine; the caller may hold locks. No
// method waits for Renew or Expired, or calls them.
//
// Keep arms a lease. An armed lease ends in exactly one of two ways: Disarm
// returns true, or Expired is called. After Close a lease may stay armed for
// ever, which is neither.
type Lease struct {
	// Value belongs to the caller: Renew and Expired use it to find what the
	// lease belongs to. It must not change after the first Keep, because a
	// call of Renew may still read it until Close has returned.
	Value any

	home atomic.Pointer[shard] // set by the first Keep, then constant

	// deadline is 0 if the lease is not armed. It is written under home.mu;
	// Valid and Deadline read it without.
	deadline atomic.Int64

	// The fields below are guarded by home.mu.

	validity int64  // Terms.Validity
	last     int64  // Terms.Last, or never
	due      int64  // when the next renewal is due, if a renewal can move the deadline
	pos      int    // 1 + index in the agenda; 0: not in it, as after Close
	gen      uint32 // generation: changes with each Keep
	taken    uint32 // generation for which it waits for a call of Renew, or is in one; 0: none
	lost     Cause  // 0: no loss has been declared since the last Keep
}

// Keep arms l. Keep of an armed lease replaces its terms, even if its deadline
// has passed and the loss is not declared yet. The result of a renewal that was
// sent before Keep is ignored. After Close, Keep arms a lease that is valid
// until its deadline and is neither renewed nor declared lost. Keep panics if
// another watchdog has kept l before.
func (w *Watchdog) Keep(l *Lease, t Terms) {
	if l.home.Load() == nil {
		l.home.CompareAndSwap(nil, &w.shards[w.next.Add(1)%shardCount])
	}
	sh := l.home.Load()
	if sh.w != w {
		panic("watchdog: lease belongs to another watchdog")
	}
	if t.Now.IsZero() {
		t.Now = time.Now()
	}
	now, deadline, last := w.moment(t.Now), w.moment(t.Deadline), never
	if !t.Last.IsZero() {
		last = w.moment(t.Last)
		deadline = min(deadline, last)
	}

	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.gen++
	l.last, l.lost = last, 0
	l.validity = min(max(0, int64(t.Validity)), never/2) // so that no sum overflows
	l.deadline.Store(deadline)
	if sh.closed {
		return
	}
	sh.plan(l, now, now+firstWait(deadline-now, l.validity))
}

// Valid reports whether l is armed and its deadline is in the future. It takes
// no lock.
func (l *Lease) Valid() bool {
	d := l.deadline.Load()
	return d != 0 && l.home.Load().w.now() < d
}

// Disarm ends l and returns true if l is armed and its deadline is in the
// future. From then on the watchdog does not renew l or declare it lost, but a
// call of Renew that is under way may still have it. Otherwise Disarm changes
// nothing and returns false: a lease whose deadline has passed is left to be
// declared lost.
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
	sh.disarm(l)
	return true
}

// Deadline returns the moment until which l is confirmed to be valid, with a
// monotonic reading. It returns the zero Time if l is not armed.
func (l *Lease) Deadline() time.Time {
	d := l.deadline.Load()
	if d == 0 {
		return time.Time{}
	}
	return l.home.Load().w.base.Add(time.Duration(d))
}

// Cause returns why l is lost, if a loss has been declared since the last Keep, or
// if the deadline has passed. It returns 0 for a lease that is valid, was disarmed,
// or was never armed. It answers before Expired is called, and the same afterwards
// until the next Keep.
func (l *Lease) Cause() Cause {
	sh := l.home.Load()
	if sh == nil {
		return 0
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if d := l.deadline.Load(); d != 0 && sh.w.now() >= d {
		return l.passed(d)
	}
	return l.lost
}

// passed returns the cause of a loss by the given deadline.
func (l *Lease) passed(deadline int64) Cause {
	if deadline == l.last {
		return CapReached
	}
	return DeadlinePassed
}
