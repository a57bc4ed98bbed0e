package watchdog

import (
	"context"
	"time"
)

// maxCalls bounds the calls of Renew that are under way for one class of one
// shard. Leases that become due meanwhile go into the next batch, so a slow
// store gets fewer and larger calls.
const maxCalls = 4

// dueLeases has the leases of one class of one shard that wait for their
// renewal, and counts the goroutines that renew them. The shard's mutex guards
// it.
type dueLeases struct {
	sh       *shard
	waiting  leaseList
	calls    int // goroutines in run
	starting int // goroutines in run that have not taken a batch yet
}

// makeDue has l renewed as soon as a call is free. sh.mu is held.
func (sh *shard) makeDue(l *Lease) {
	if l.busy {
		// A call of an earlier generation has l. When it ends, it calls
		// makeDue.
		l.again = true
		return
	}
	q := sh.due[l.class]
	if q == nil {
		q = &dueLeases{sh: sh}
		sh.due[l.class] = q
	}
	q.waiting.push(l)
	if q.calls < maxCalls && q.waiting.n > q.starting*sh.w.maxBatch {
		q.calls++
		q.starting++
		sh.w.work.Add(1)
		go q.run()
	}
}

// call is one call of Renew.
type call struct {
	batch   []*Lease
	gens    []uint64 // the generations of batch
	sent    int64
	timeout int64
}

// run calls Renew until no lease is waiting.
func (q *dueLeases) run() {
	defer q.sh.w.work.Done()
	var c call
	for q.take(&c, true); len(c.batch) > 0; q.take(&c, false) {
		ctx, cancel := context.WithTimeout(q.sh.w.ctx, time.Duration(c.timeout))
		outcomes := q.sh.w.renew(ctx, c.batch)
		cancel()
		q.apply(&c, outcomes)
	}
}

// take fills c. An empty batch means that no lease is waiting; the goroutine has
// to end, because makeDue does not count on it any more.
func (q *dueLeases) take(c *call, first bool) {
	sh := q.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if first {
		q.starting--
	}
	c.batch, c.gens = c.batch[:0], c.gens[:0]
	// The clock is read before the call, because the store counts a renewed
	// lease from a moment within the call.
	c.sent = sh.w.now()
	c.timeout = sh.w.timeout
	var latest int64
	for len(c.batch) < sh.w.maxBatch && !sh.closed {
		l := q.waiting.pop()
		if l == nil {
			break
		}
		d := l.deadline.Load()
		if d <= c.sent {
			continue // the timer is about to declare the loss
		}
		l.busy = true
		c.batch = append(c.batch, l)
		c.gens = append(c.gens, l.gen)
		c.timeout = min(c.timeout, l.validity/4)
		latest = max(latest, d)
	}
	if len(c.batch) == 0 {
		q.calls--
		return
	}
	c.timeout = min(c.timeout, latest-c.sent)
}

// apply enters the outcomes of c.
func (q *dueLeases) apply(c *call, outcomes []Outcome) {
	sh := q.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.w.now()
	for i, l := range c.batch {
		l.busy = false
		switch {
		case sh.closed:
		case l.gen != c.gens[i]:
			// The outcome is about an earlier generation.
			if l.again {
				l.again = false
				sh.makeDue(l)
			}
		case i < len(outcomes):
			sh.applyOne(l, outcomes[i], c.sent, now)
		default:
			sh.applyOne(l, Unknown, c.sent, now)
		}
	}
}

// applyOne enters the outcome for l of a call that was sent at the given moment.
// sh.mu is held.
func (sh *shard) applyOne(l *Lease, outcome Outcome, sent, now int64) {
	d := l.deadline.Load()
	if d <= now {
		// The timer is about to declare the loss. A confirmation that comes
		// so late changes nothing, because the caller may have seen already
		// that the lease is not valid. Neither does Lost, because the caller
		// may have asked for the cause.
		return
	}
	if outcome == Lost {
		sh.lose(l, ToldLost)
		return
	}
	due := now + retryWait(d-now, l.validity)
	if outcome == Renewed {
		if n := min(addSaturated(sent, l.validity), l.last); n > d {
			l.deadline.Store(n) // the heap keeps the earlier key
			d = n
		}
		due = d - (l.validity - l.validity/3)
	}
	if l.renewable(d) && due < d {
		sh.schedule(l, now, due)
	}
}
