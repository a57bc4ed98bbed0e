package watchdog

import (
	"context"
	"time"
)

// maxCalls bounds the calls of Renew that are under way for one class of one shard. Leases that become
// due meanwhile go into the next batch, so a slow store gets fewer and larger calls.
const maxCalls = 4

// dueLeases has the leases of one class of one shard that wait for their renewal. The shard's mutex guards
// it.
type dueLeases struct {
	waiting []*Lease
	calls   int // goroutines in run
}

// startCalls starts a goroutine for each batch that waits, up to maxCalls. sh.mu is held.
func (sh *shard) startCalls() {
	for i := range sh.due {
		q := &sh.due[i]
		for n := len(q.waiting); n > 0 && q.calls < maxCalls; n -= sh.w.cfg.MaxBatch {
			q.calls++
			sh.w.work.Go(func() { sh.run(q) })
		}
	}
}

// run calls Renew until no lease is waiting.
func (sh *shard) run(q *dueLeases) {
	for {
		batch, sent, timeout := sh.take(q)
		if len(batch) == 0 {
			return
		}
		sh.renew(q, batch, sent, timeout)
	}
}

// renew makes one call of Renew. If that ends the goroutine the outcomes are unknown, and another
// goroutine goes on.
func (sh *shard) renew(q *dueLeases, batch []*Lease, sent int64, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(sh.w.ctx, timeout)
	defer cancel()
	var outcomes []Outcome
	returned := false
	defer func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if sh.apply(batch, outcomes, sent); !returned {
			q.calls--
			sh.startCalls()
		}
	}()
	outcomes = sh.w.cfg.Renew(ctx, batch)
	returned = true
}

// take returns the next batch, the moment before its call, and the time for it. If the batch is empty
// the goroutine has to end.
func (sh *shard) take(q *dueLeases) (batch []*Lease, sent int64, timeout time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// The clock is read before the call, because the store counts a renewed lease from a moment within
	// the call.
	sent = sh.w.now()
	bound, latest := int64(sh.w.cfg.Timeout), int64(0)
	for len(q.waiting) > 0 && len(batch) < sh.w.cfg.MaxBatch && !sh.closed {
		l := q.waiting[0]
		q.waiting = q.waiting[1:]
		d := l.deadline.Load()
		if l.taken != l.gen || d <= sent { // disarmed, armed again, or about to be lost
			sh.giveBack(l, sent)
			continue
		}
		batch = append(batch, l)
		bound, latest = min(bound, l.validity/4), max(latest, d)
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	if len(batch) == 0 {
		q.calls--
	}
	return batch, sent, time.Duration(min(bound, latest-sent))
}

// giveBack ends what l was taken for, and reports whether that was its present generation. If not, its
// renewal is planned again, because it may have become due meanwhile. sh.mu is held.
func (sh *shard) giveBack(l *Lease, now int64) (present bool) {
	present = l.taken == l.gen
	l.taken = 0
	if !present && l.pos != 0 {
		sh.plan(l, now, l.due)
	}
	return present
}

// apply enters the outcomes of a call for batch that was sent at the given moment. sh.mu is held.
func (sh *shard) apply(batch []*Lease, outcomes []Outcome, sent int64) {
	now := sh.w.now()
	for i, l := range batch {
		outcome := Unknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		if sh.giveBack(l, now) && l.pos != 0 {
			sh.applyOne(l, outcome, sent, now)
		}
	}
}

// applyOne enters the outcome for l of a call that was sent at the given moment. sh.mu is held.
func (sh *shard) applyOne(l *Lease, outcome Outcome, sent, now int64) {
	d := l.deadline.Load()
	if d <= now {
		// The timer is about to declare the loss. A confirmation that comes so late changes nothing,
		// because the caller may have seen already that the lease is not valid. Neither does Lost,
		// because the caller may have asked for the cause.
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
