package watchdog

import (
	"sync"
	"time"
)

// shard keeps a part of the leases. Shards have nothing in common but the timing wheel, which each of
// them can do without: the timer of a shard is a standard timer, which runs on the monotonic clock. It
// declares losses, and sends the renewals that the wheel has not sent by their moment.
type shard struct {
	w *Watchdog

	mu        sync.Mutex
	closed    bool
	agenda    agenda // the armed leases
	due       [classes]dueLeases
	losses    []*Lease // declared lost, not reported yet
	reporting bool     // a goroutine runs report

	// timerAt is when the timer fires, 0 if it is not set. Only look moves the timer to a later time: a
	// firing without work is cheaper than a reset at each Keep.
	timer   *time.Timer
	timerAt int64
	wheelAt int64 // the moment of the entry that the wheel has for this shard, or 0
}

// plan has l renewed at the given moment or a little earlier, if that is before its deadline and a
// renewal can move the deadline. sh.mu is held.
func (sh *shard) plan(l *Lease, now, due int64) {
	d := l.deadline.Load()
	l.due = due
	if d < l.last && due < d {
		d = quantize(now, due)
	}
	sh.agenda.set(l, d)
	if l.pos == 1 {
		sh.wake(now)
	}
}

// wake has look called when the first lease of the agenda needs it: by the timer, and if a renewal is
// due then, by the wheel a little earlier. Most leases end long before that, so the wheel is given an
// entry only when its moment is near. sh.mu is held.
func (sh *shard) wake(now int64) {
	if len(sh.agenda) == 0 {
		return
	}
	at := sh.agenda[0].at
	switch wait := at - now; {
	case at == sh.agenda[0].l.deadline.Load() || wait < shortestEntry:
	case wait > longestEntry:
		at -= longestEntry
	case sh.wheelAt == 0 || at < sh.wheelAt:
		if sh.w.wheels.submit(at, func() { sh.look(at) }) {
			sh.wheelAt = at
		}
	}
	if sh.timerAt != 0 && sh.timerAt <= at {
		return
	}
	sh.timerAt = at
	d := time.Duration(at - sh.w.now())
	if sh.timer == nil {
		sh.timer = time.AfterFunc(d, func() { sh.look(0) })
		return
	}
	sh.timer.Reset(d)
}

// look declares passed deadlines, and starts the renewals that are due. The wheel calls it with the
// moment of its entry, the timer with 0.
func (sh *shard) look(entry int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed || entry != 0 && entry != sh.wheelAt {
		return // the entry was too late, or another one has replaced it
	}
	now, early := sh.w.now(), int64(0)
	if late := now - sh.wheelAt; sh.wheelAt != 0 && late >= lateness || entry != 0 && -late > earliness {
		// The wheel has hung, or the wall clock was stepped, or the process stood still.
		sh.w.wheels.stop(now + pause)
		sh.wheelAt = 0
	} else if entry != 0 {
		sh.wheelAt, early = 0, earliness
	}
	for len(sh.agenda) > 0 {
		l, at := sh.agenda[0].l, sh.agenda[0].at
		d := l.deadline.Load()
		if d <= now {
			sh.lose(l, l.passed(d))
		} else if at < d && at <= now+early {
			sh.agenda.set(l, d)
			if l.taken == 0 { // else for an earlier generation: its renewal is planned again after that
				l.taken = l.gen
				q := &sh.due[classOf(l.validity)]
				q.waiting = append(q.waiting, l)
			}
		} else {
			break
		}
	}
	sh.startCalls()
	sh.timerAt = 0
	sh.wake(now)
}

// disarm ends the armed lease l. sh.mu is held.
func (sh *shard) disarm(l *Lease) {
	sh.agenda.remove(l)
	l.deadline.Store(0)
}

// lose ends the armed lease l by a loss, which is reported on a goroutine of its own: one for each
// shard, however many leases are lost and however long the calls of Expired take. sh.mu is held and sh
// is not closed.
func (sh *shard) lose(l *Lease, cause Cause) {
	sh.disarm(l)
	l.lost = cause
	sh.losses = append(sh.losses, l)
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
		for _, l := range losses {
			sh.w.cfg.Expired(l)
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
	for len(sh.agenda) > 0 {
		sh.agenda.remove(sh.agenda[0].l)
	}
}
