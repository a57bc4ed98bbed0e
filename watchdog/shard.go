package watchdog

import (
	"sync"
	"time"
)

// shard keeps a part of the leases. Shards have nothing in common but the
// timing wheel, which each of them can do without. The timer of a shard is a
// standard timer, which runs on the monotonic clock. It declares losses, and
// sends the renewals that the wheel should have sent and did not.
type shard struct {
	w *Watchdog

	mu     sync.Mutex
	closed bool

	// recent has the leases that were armed a moment ago, oldest first. Most
	// locks are held for less than recentTime, so most leases are disarmed
	// before they cost an entry in the heap, in a slot or in the wheel.
	recent    leaseList
	deadlines deadlineHeap // all other leases
	slots     map[slotKey]*slot
	due       [classes]*dueLeases

	losses    []loss // declared, not reported yet
	reporting bool   // a goroutine runs report

	// timerAt is when the timer fires, 0 if it is not set. The timer is never
	// moved to a later time: a firing without work is cheaper than a reset at
	// each Keep.
	timer   *time.Timer
	timerAt int64
}

// loss is a declared loss for which Expired has not been called yet.
type loss struct {
	l     *Lease
	cause Cause
}

const (
	// recentTime is how long a lease stays in recent at least. It stays there
	// for twice as long at most.
	recentTime = int64(100 * time.Millisecond)
	// recentMargin is how far away the first renewal and the deadline of a
	// recent lease have to be. Twice recentTime is enough as long as
	// timers are punctual and Terms.Now is exact.
	recentMargin = 4 * recentTime
)

// add enters l, which Keep has just armed. sh.mu is held.
func (sh *shard) add(l *Lease, now, deadline int64) {
	first := deadline
	if l.renewable(deadline) {
		first = min(first, l.firstDue(deadline))
	}
	if first-now < recentMargin {
		sh.settle(l, now)
		return
	}
	sh.recent.push(l)
	sh.setTimer(now + recentTime)
}

// settle enters the deadline of l and schedules its renewal. sh.mu is held.
func (sh *shard) settle(l *Lease, now int64) {
	d := l.deadline.Load()
	sh.deadlines.set(l, d)
	sh.setTimer(sh.deadlines[0].key)
	if l.renewable(d) {
		sh.schedule(l, now, l.firstDue(d))
	}
}

// unlink takes l out of all lists and starts a new generation. sh.mu is held.
func (sh *shard) unlink(l *Lease) {
	l.gen++
	l.again = false
	l.list.remove(l)
	sh.deadlines.remove(l)
}

// disarm ends the armed lease l. sh.mu is held.
func (sh *shard) disarm(l *Lease) {
	sh.unlink(l)
	l.deadline.Store(0)
}

// lose ends the armed lease l by a loss, which is reported on a goroutine of its
// own: one for each shard, however many leases are lost and however long the
// calls of Expired take. sh.mu is held and sh is not closed.
func (sh *shard) lose(l *Lease, cause Cause) {
	sh.disarm(l)
	l.lost = cause
	sh.losses = append(sh.losses, loss{l, cause})
	if !sh.reporting {
		sh.reporting = true
		sh.w.work.Add(1)
		go sh.report()
	}
}

// report calls Expired for the declared losses until there are none.
func (sh *shard) report() {
	defer sh.w.work.Done()
	for {
		sh.mu.Lock()
		losses := sh.losses
		sh.losses = nil
		sh.reporting = len(losses) > 0
		sh.mu.Unlock()
		if len(losses) == 0 {
			return
		}
		for _, x := range losses {
			sh.w.expired(x.l, x.cause)
		}
	}
}

// setTimer makes the timer fire at t or earlier. sh.mu is held.
func (sh *shard) setTimer(t int64) {
	if sh.timerAt != 0 && sh.timerAt <= t {
		return
	}
	sh.timerAt = t
	d := time.Duration(t - sh.w.now())
	if sh.timer == nil {
		sh.timer = time.AfterFunc(d, sh.onTimer)
		return
	}
	sh.timer.Reset(d)
}

// onTimer settles leases that are not recent any more, declares the losses by
// deadline, makes leases due that the wheel has not made due, and sets the timer
// again.
func (sh *shard) onTimer() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return
	}
	now := sh.w.now()
	// If this timer is late then the whole process was held up, so a late
	// wheel is not at fault.
	onTime := now-sh.timerAt <= minGrace
	sh.timerAt = 0

	for l := sh.recent.head; l != nil && now-l.kept >= recentTime; l = sh.recent.head {
		sh.recent.remove(l)
		sh.settle(l, now)
	}
	for len(sh.deadlines) > 0 && sh.deadlines[0].key <= now {
		l := sh.deadlines[0].l
		if d := l.deadline.Load(); d > now {
			sh.deadlines.set(l, d)
		} else {
			sh.lose(l, l.passed(d))
		}
	}
	if len(sh.deadlines) > 0 {
		sh.setTimer(sh.deadlines[0].key)
	}
	if sh.recent.head != nil {
		// Not when the first of them has its recentTime: a shard with many
		// short leases would set its timer for each of them.
		sh.setTimer(now + recentTime)
	}
	sh.checkSlots(now, onTime)
}

// close lets go of all leases. They stay armed: Valid and Disarm go on by the
// clock.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
	if sh.timer != nil {
		sh.timer.Stop()
	}
	for sh.recent.pop() != nil {
	}
	for _, e := range sh.deadlines {
		e.l.pos = 0
		e.l.list.remove(e.l)
	}
	sh.deadlines, sh.slots = nil, nil
}
