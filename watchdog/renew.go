package watchdog

import (
	"context"
	"time"
)

// maxCalls bounds the Renew calls under way for one class of one shard. The
// leases that wait meanwhile make the next batch, so a slow store is asked
// less often for more.
const maxCalls = 4

// group holds the leases of one class of one shard that are due.
type group struct {
	sh       *shard
	due      leaseList
	calls    int // goroutines in run
	starting int // those of them that have not taken a batch yet
}

// makeDue lets l be renewed as soon as a call is free. sh.mu is held.
func (sh *shard) makeDue(l *Lease) {
	if l.busy {
		// A call still has it, of an earlier generation. Its end makes l due.
		l.again = true
		return
	}
	g := sh.groups[l.class]
	if g == nil {
		g = &group{sh: sh}
		sh.groups[l.class] = g
	}
	g.due.push(l)
	if g.calls < maxCalls && g.due.n > g.starting*sh.w.maxBatch {
		g.calls++
		g.starting++
		sh.w.work.Add(1)
		go g.run()
	}
}

// call is one Renew call: the leases, and of which generation they were.
type call struct {
	batch   []*Lease
	gens    []uint64
	sent    int64
	timeout int64
	losses  []loss
}

// run calls Renew until nothing is due.
func (g *group) run() {
	defer g.sh.w.work.Done()
	var c call
	for g.take(&c, true); len(c.batch) > 0; g.take(&c, false) {
		ctx, cancel := context.WithTimeout(g.sh.w.ctx, time.Duration(c.timeout))
		outcomes := g.sh.w.renew(ctx, c.batch)
		cancel()
		g.apply(&c, outcomes)
		g.sh.w.tell(c.losses)
	}
}

// take fills c. An empty batch means that nothing is left to do, and ends the
// goroutine: whoever makes a lease due after that starts another.
func (g *group) take(c *call, first bool) {
	sh := g.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if first {
		g.starting--
	}
	c.batch, c.gens = c.batch[:0], c.gens[:0]
	// Read before the call and not in it or after it: the store counts from
	// some moment later than this one.
	c.sent = sh.w.now()
	c.timeout = sh.w.timeout
	var latest int64
	for len(c.batch) < sh.w.maxBatch && !sh.closed {
		l := g.due.pop()
		if l == nil {
			break
		}
		d := l.deadline.Load()
		if d <= c.sent {
			continue // the timer is about to declare it
		}
		l.busy = true
		c.batch = append(c.batch, l)
		c.gens = append(c.gens, l.gen)
		c.timeout = min(c.timeout, l.validity/4)
		latest = max(latest, d)
	}
	if len(c.batch) == 0 {
		g.calls--
		return
	}
	c.timeout = min(c.timeout, latest-c.sent)
}

// apply enters the results of c, and leaves in it the losses to be told.
func (g *group) apply(c *call, outcomes []Outcome) {
	sh := g.sh
	c.losses = c.losses[:0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.w.now()
	for i, l := range c.batch {
		l.busy = false
		if sh.closed {
			continue
		}
		if l.gen != c.gens[i] {
			// Ended, lost or armed anew since: this result is not about it.
			if l.again {
				l.again = false
				sh.makeDue(l)
			}
			continue
		}
		outcome := Unknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		if outcome == Lost {
			sh.drop(l)
			c.losses = append(c.losses, loss{l, ToldLost})
			continue
		}
		d := l.deadline.Load()
		if d <= now {
			// A confirmation that comes after the deadline revives nothing:
			// somebody may have relied on the loss already. The timer is about
			// to declare it.
			continue
		}
		due := now + retryWait(d-now, l.validity)
		if outcome == Renewed {
			if n := min(addSaturated(c.sent, l.validity), l.last); n > d {
				// The heap keeps its earlier key.
				l.deadline.Store(n)
				d = n
			}
			due = d - (l.validity - l.validity/3)
		}
		if l.gainful(d) && due < d {
			sh.schedule(l, now, due)
		}
	}
}
