package watchdog

import (
	"context"
	"time"
)

// maxCalls bounds the calls of Renew that are under way for one class of one shard.
// Leases that become due meanwhile go into the next batch, so a slow store gets fewer
// and larger calls.
const maxCalls = 4

// dueLeases has the leases of one class of one shard that wait for their renewal. The
// shard's mutex guards it.
type dueLeases struct {
	sh      *shard
	waiting leaseList
	calls   int // goroutines in run
}

// makeDue has l renewed by the next call. sh.mu is held.
func (sh *shard) makeDue(l *Lease) {
	if l.inCall != 0 {
		return // of an earlier generation; apply plans the renewal when that call has ended
	}
	class := classOf(l.validity)
	if sh.due[class] == nil {
		sh.due[class] = &dueLeases{sh: sh}
	}
	sh.due[class].waiting.push(l)
}

// start starts a goroutine for each batch that waits, up to maxCalls. The shard's mutex
// is held.
func (q *dueLeases) start() {
	if q == nil {
		return
	}
	for n := q.waiting.n; n > 0 && q.calls < maxCalls; n -= q.sh.w.maxBatch {
		q.calls++
		q.sh.w.work.Go(q.run)
	}
}

// run calls Renew until no lease is waiting.
func (q *dueLeases) run() {
	var batch []*Lease
	for {
		var sent int64
		var timeout time.Duration
		if batch, sent, timeout = q.take(batch[:0]); len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(q.sh.w.ctx, timeout)
		outcomes := q.sh.w.renew(ctx, batch)
		cancel()
		q.sh.apply(batch, outcomes, sent)
	}
}

// take fills batch, and returns the moment before its call and the time for it. If the
// batch stays empty the goroutine has to end.
func (q *dueLeases) take(batch []*Lease) (_ []*Lease, sent int64, timeout time.Duration) {
	w := q.sh.w
	q.sh.mu.Lock()
	defer q.sh.mu.Unlock()
	// The clock is read before the call, because the store counts a renewed lease from a
	// moment within the call.
	sent = w.now()
	bound, latest := w.timeout, int64(0)
	for l := q.waiting.head; l != nil && len(batch) < w.maxBatch && !q.sh.closed; l = q.waiting.head {
		q.waiting.remove(l)
		d := l.deadline.Load()
		if d <= sent {
			continue // the timer is about to declare the loss
		}
		l.inCall = l.gen
		batch = append(batch, l)
		bound, latest = min(bound, l.validity/4), max(latest, d)
	}
	if len(batch) == 0 {
		q.calls--
	}
	return batch, sent, time.Duration(min(bound, latest-sent))
}

// apply enters the outcomes of a call for batch that was sent at the given moment.
func (sh *shard) apply(batch []*Lease, outcomes []Outcome, sent int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.w.now()
	for i, l := range batch {
		generation, outcome := l.inCall, Unknown
		l.inCall = 0
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		switch {
		case sh.closed:
		case generation == l.gen:
			sh.applyOne(l, outcome, sent, now)
		case l.pos != 0: // armed again, and perhaps due again meanwhile
			sh.plan(l, now, l.firstDue(l.deadline.Load()))
		}
	}
	if !sh.closed {
		sh.wake(now)
	}
}

// applyOne enters the outcome for l of a call that was sent at the given moment. sh.mu
// is held.
func (sh *shard) applyOne(l *Lease, outcome Outcome, sent, now int64) {
	d := l.deadline.Load()
	if d <= now {
		// The timer is about to declare the loss. A confirmation that comes so late
		// changes nothing, because the caller may have seen already that the lease is not
		// valid. Neither does Lost, because the caller may have asked for the cause.
		return
	}
	if outcome == Lost {
		sh.lose(l, ToldLost)
		return
	}
	due := now + retryWait(d-now, l.validity)
	if outcome == Renewed {
		if n := min(sent+l.validity, l.last); n > d {
			l.deadline.Store(n)
			d = n
		}
		due = d - (l.validity - l.validity/3)
	}
	sh.plan(l, now, due)
}
