package watchdog

import (
	"sync"
	"time"
)

// shard keeps a part of the leases. Shards have nothing in common but the timing wheel,
// which each of them can do without: the timer of a shard is a standard timer, which
// runs on the monotonic clock. It declares losses, and sends the renewals that the
// wheel has not sent by their moment.
type shard struct {
	w *Watchdog

	mu     sync.Mutex
	closed bool

	// recent has the leases that were armed a moment ago, oldest first. Most locks are
	// held for less than recentTime, so most leases are disarmed before they cost a
	// place in the agenda or an entry of the wheel.
	recent leaseList
	agenda agenda // all other leases
	due    [classes]*dueLeases

	losses    []loss // declared, not reported yet
	reporting bool   // a goroutine runs report

	// timerAt is when the timer fires, 0 if it is not set. Only look moves the timer to
	// a later time: a firing without work is cheaper than a reset at each Keep.
	timer   *time.Timer
	timerAt int64
	wheelAt int64 // the moment of the entry that the wheel has for this shard, or 0
}

// loss is a declared loss for which Expired has not been called yet.
type loss struct {
	l     *Lease
	cause Cause
}

const (
	// recentTime is how long a lease stays in recent at least. It stays there for twice
	// as long at most.
	recentTime = int64(100 * time.Millisecond)
	// recentMargin is how far away the first renewal and the deadline of a recent lease
	// have to be. Twice recentTime is enough as long as timers are punctual and
	// Terms.Now is exact.
	recentMargin = 4 * recentTime
)

// add enters l, which Keep has just armed. sh.mu is held.
func (sh *shard) add(l *Lease, now, deadline int64) {
	first := deadline
	if l.renewable(deadline) {
		first = min(first, l.firstDue(deadline))
	}
	if first-now >= recentMargin {
		sh.recent.push(l)
		sh.setTimer(now + recentTime)
		return
	}
	sh.plan(l, now, first)
	sh.wake(now)
}

// plan has l renewed at the given moment or a little earlier, if that is before its
// deadline and a renewal can move the deadline. sh.mu is held.
func (sh *shard) plan(l *Lease, now, due int64) {
	d := l.deadline.Load()
	if l.renewable(d) && due < d {
		sh.agenda.set(l, quantize(now, due))
	} else {
		sh.agenda.set(l, d)
	}
}

// wake has look called when the first lease of the agenda needs it: by the timer, and
// if a renewal is due then, by the wheel a little earlier. sh.mu is held.
func (sh *shard) wake(now int64) {
	if len(sh.agenda) > 0 {
		first := sh.agenda[0]
		at := min(first.at, now+longestEntry)
		if first.at < first.l.deadline.Load() && at-now >= shortestEntry && (sh.wheelAt == 0 || at < sh.wheelAt) &&
			sh.w.wheels.submit(at, func() { sh.wheelFired(at) }) {
			sh.wheelAt = at
		}
		sh.setTimer(first.at)
	}
	if sh.wheelAt != 0 {
		sh.setTimer(sh.wheelAt + lateness)
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

// wheelFired is called by the wheel for an entry.
func (sh *shard) wheelFired(at int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed || sh.wheelAt != at {
		return // it was too late, or another entry has replaced this one
	}
	now := sh.w.now()
	if at-now > earliness {
		// The wall clock was stepped. The next entry would fire at once, too.
		sh.w.wheels.rest(now + pause)
	}
	sh.checkWheel(now)
	sh.wheelAt = 0
	sh.look(now, earliness)
}

// onTimer is called by the timer.
func (sh *shard) onTimer() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return
	}
	now := sh.w.now()
	sh.checkWheel(now)
	sh.look(now, 0)
}

// checkWheel does without a wheel that is too late. sh.mu is held.
func (sh *shard) checkWheel(now int64) {
	if sh.wheelAt != 0 && now-sh.wheelAt >= lateness {
		sh.w.wheels.rest(now + pause)
		sh.wheelAt = 0
	}
}

// look plans leases that are not recent any more, declares passed deadlines, and sends
// the renewals that are due, or will be within early. sh.mu is held.
func (sh *shard) look(now, early int64) {
	for l := sh.recent.head; l != nil && now-l.kept >= recentTime; l = sh.recent.head {
		sh.recent.remove(l)
		sh.plan(l, now, l.firstDue(l.deadline.Load()))
	}
	for len(sh.agenda) > 0 {
		l, at := sh.agenda[0].l, sh.agenda[0].at
		d := l.deadline.Load()
		if d <= now {
			sh.lose(l, l.passed(d))
		} else if at < d && at <= now+early {
			sh.agenda.set(l, d)
			sh.makeDue(l)
		} else {
			break
		}
	}
	for _, q := range sh.due {
		q.start()
	}
	sh.timerAt = 0
	if sh.recent.head != nil {
		// Not when the first of them has its recentTime: a shard with many short leases
		// would set its timer for each of them.
		sh.setTimer(now + recentTime)
	}
	sh.wake(now)
}

// unlink takes l out of all lists and starts a new generation. sh.mu is held.
func (sh *shard) unlink(l *Lease) {
	l.gen++
	l.list.remove(l)
	sh.agenda.remove(l)
}

// disarm ends the armed lease l. sh.mu is held.
func (sh *shard) disarm(l *Lease) {
	sh.unlink(l)
	l.deadline.Store(0)
}

// lose ends the armed lease l by a loss, which is reported on a goroutine of its own:
// one for each shard, however many leases are lost and however long the calls of
// Expired take. sh.mu is held and sh is not closed.
func (sh *shard) lose(l *Lease, cause Cause) {
	sh.disarm(l)
	l.lost = cause
	sh.losses = append(sh.losses, loss{l, cause})
	if !sh.reporting {
		sh.reporting = true
		sh.w.work.Go(sh.report)
	}
}

// report calls Expired for the declared losses until there are none.
func (sh *shard) report() {
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

// close lets go of all leases. They stay armed: Valid and Disarm go on by the clock.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
	if sh.timer != nil {
		sh.timer.Stop()
	}
	for sh.recent.head != nil {
		sh.unlink(sh.recent.head)
	}
	for len(sh.agenda) > 0 {
		sh.unlink(sh.agenda[0].l)
	}
}
