package watchdog

import (
	"sync"
	"time"
)

// shard keeps a part of the leases and shares nothing with the others but the
// wheel, which it can do without. Its timer is a standard one, so monotonic; it
// declares deadlines, and sends what the wheel should have sent.
type shard struct {
	w *Watchdog

	mu        sync.Mutex
	closed    bool
	slots     map[slotKey]*slot
	deadlines deadlineHeap
	groups    [classes]*group

	timer *time.Timer
	// timerAt is when the timer fires, 0 if it is not set. It is never set
	// later: to fire for nothing is cheaper than a reset for each Lock.
	timerAt int64
}

// slot holds the leases of one class that are due at one moment. It stays in
// the map, empty or not, until it fires: entries of the wheel are never
// cancelled, since the library's Timer.Stop races with its dispatcher.
type slot struct {
	slotKey
	leases leaseList
	grace  int64
	engine *engine // nil: the shard's timer alone watches it
}

type slotKey struct {
	at    int64
	class uint8
}

// watched is when the shard's timer looks after s.
func (s *slot) watched() int64 {
	if s.engine == nil {
		return s.at
	}
	return addSaturated(s.at, s.grace)
}

// loss is a loss that is decided and still to be told, without the lock.
type loss struct {
	l     *Lease
	cause Cause
}

func (sh *shard) init(w *Watchdog) {
	sh.w = w
	sh.slots = make(map[slotKey]*slot)
}

// arm makes the timer fire at t at the latest. sh.mu is held.
func (sh *shard) arm(t int64) {
	if sh.timerAt != 0 && sh.timerAt <= t {
		return
	}
	sh.timerAt = t
	d := time.Duration(t - sh.w.now())
	if sh.timer == nil {
		sh.timer = time.AfterFunc(d, sh.look)
		return
	}
	sh.timer.Reset(d)
}

// schedule makes l due at the given moment. sh.mu is held.
func (sh *shard) schedule(l *Lease, now, due int64) {
	at := quantize(now, due)
	if at <= now {
		sh.makeDue(l)
		return
	}
	key := slotKey{at, l.class}
	s := sh.slots[key]
	if s == nil {
		s = &slot{slotKey: key, grace: graceOf(at - now)}
		sh.slots[key] = s
		sh.hop(s, now)
		sh.arm(s.watched())
	}
	s.leases.push(l)
}

// hop hands s to the wheel, for as much of its wait as the wheel takes at once.
func (sh *shard) hop(s *slot, now int64) {
	s.engine = nil
	if wait := s.at - now; wait >= shortestHop {
		until := now + min(wait, longestHop)
		s.engine = sh.w.wheels.submit(until, func(e *engine) { sh.fired(s, e, until) })
	}
}

// fired is the wheel's call for s. It only moves leases from list to list.
func (sh *shard) fired(s *slot, e *engine, until int64) {
	condemn := false
	defer func() {
		if condemn {
			sh.w.wheels.condemn(e)
		}
	}()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed || s.engine != e || sh.slots[s.slotKey] != s {
		return
	}
	now := sh.w.now()
	if until-now > earliness {
		// Too early: the wheel's clock is not ours. Handing s back to it
		// could go on in a circle without end, so s stays off it.
		condemn = e.strike()
		s.engine = nil
		sh.arm(s.watched())
		return
	}
	e.punctual()
	switch {
	case s.at-now <= earliness:
		sh.release(s)
	case s.leases.n == 0:
		delete(sh.slots, s.slotKey)
	default:
		sh.hop(s, now)
		sh.arm(s.watched())
	}
}

// release makes all of s due. sh.mu is held.
func (sh *shard) release(s *slot) {
	delete(sh.slots, s.slotKey)
	for l := s.leases.pop(); l != nil; l = s.leases.pop() {
		sh.makeDue(l)
	}
}

// look is the timer's function: it declares deadlines that have passed, does
// the wheel's work where the wheel has not, and sets the timer again.
func (sh *shard) look() {
	sh.mu.Lock()
	if sh.closed {
		sh.mu.Unlock()
		return
	}
	sh.w.work.Add(1)
	defer sh.w.work.Done()
	now := sh.w.now()
	// A timer that was late itself says nothing about the wheel: the whole
	// process was held up.
	late := now-sh.timerAt > minGrace
	sh.timerAt = 0

	var losses []loss
	for len(sh.deadlines) > 0 && sh.deadlines[0].key <= now {
		l := sh.deadlines[0].l
		if d := l.deadline.Load(); d > now {
			sh.deadlines.set(l, d)
			continue
		}
		sh.drop(l)
		losses = append(losses, loss{l, DeadlinePassed})
	}

	var suspect *engine
	for _, s := range sh.slots {
		if s.watched() > now {
			continue
		}
		if s.engine != nil && !late && s.engine.strike() {
			suspect = s.engine
		}
		sh.release(s)
	}

	if len(sh.deadlines) > 0 {
		sh.arm(sh.deadlines[0].key)
	}
	for _, s := range sh.slots {
		sh.arm(s.watched())
	}
	sh.mu.Unlock()

	if suspect != nil {
		sh.w.wheels.condemn(suspect)
	}
	sh.w.tell(losses)
}

// declare declares l lost if its deadline has passed and nobody has done so.
func (sh *shard) declare(l *Lease) {
	sh.mu.Lock()
	d := l.deadline.Load()
	passed := d != 0 && sh.w.now() >= d
	if passed {
		sh.drop(l)
	}
	sh.mu.Unlock()
	if passed {
		sh.w.expired(l, DeadlinePassed)
	}
}

// drop disarms l. Whoever drops an armed lease has decided how it ended.
// sh.mu is held.
func (sh *shard) drop(l *Lease) {
	l.gen++
	l.again = false
	l.deadline.Store(0)
	l.in.remove(l)
	sh.deadlines.remove(l)
}

func (w *Watchdog) tell(losses []loss) {
	for _, x := range losses {
		w.expired(x.l, x.cause)
	}
}

// offWheel leaves the slots that wait on e to the timer.
func (sh *shard) offWheel(e *engine) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return
	}
	for _, s := range sh.slots {
		if s.engine == e {
			s.engine = nil
			sh.arm(s.watched())
		}
	}
}

// close lets go of all leases. They stay armed, for the clock to judge.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
	if sh.timer != nil {
		sh.timer.Stop()
	}
	for _, e := range sh.deadlines {
		e.l.pos = 0
		e.l.in.remove(e.l)
	}
	sh.deadlines, sh.slots = nil, nil
}
