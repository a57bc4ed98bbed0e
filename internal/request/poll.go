package request

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	// askGap is the shortest time between two requests of one id that are not the
	// store's own wish: it bounds what a flood of events can cost.
	askGap = 10 * time.Millisecond
	// minSleep keeps a store that answers "ask again at once" from a hot loop.
	minSleep = time.Millisecond
)

// polling is the background part of a request: it asks again when an event, the
// store's reconnection or the time of Retry gives reason to. Events make it fast;
// none is needed for progress. It is guarded by Request.mu.
type polling struct {
	then  func(Answer) // is called once, with a grant or a refusal
	timer *time.Timer  // fires at the next request, or at giveUp while one is under way

	next      time.Time // when to ask
	giveUp    time.Time // unless an answer is confirmed before
	sent      time.Time // the last request
	heard     bool      // the request before was confirmed
	late      bool      // giveUp is what was left to a request that was itself late
	again     bool      // a reason to ask again came since the last request was sent
	mustRenew bool      // that reason was a pushed grant; an answer has to bring its lease to the TTL
	trouble   error     // of the last request, if its outcome is unknown
	heldBy    string    // label of a hold in the way, by the last confirmed answer
	pause     Backoff
}

// Poll goes on in the background from answer, which was Queued or Unknown, until
// the request is granted or certainly refused. Then it calls then once, on a
// goroutine of its own or of the store, unless Abandon was called before. An unknown
// outcome is asked again under the same id with growing pauses, until nothing has
// been confirmed for a whole TTL: that is a refusal with ErrUnavailable.
func (r *Request) Poll(answer Answer, then func(Answer)) {
	now := time.Now()
	p := r.newPolling(now, then)
	if answer.Outcome == Queued {
		p.heard, p.heldBy = true, answer.HeldBy
		p.next = now.Add(r.retry(answer.Retry))
	} else {
		p.trouble = answer.Err
		p.next = now.Add(p.pause.Next())
	}
	r.startPolling(p, now)
}

// Start is Poll for a request that was not sent yet: it is sent in the background.
func (r *Request) Start(then func(Answer)) {
	now := time.Now()
	p := r.newPolling(now, then)
	p.next = now
	r.startPolling(p, now)
}

func (r *Request) newPolling(now time.Time, then func(Answer)) *polling {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &polling{then: then, sent: r.base, giveUp: r.base.Add(r.config.TTL)}
	if r.base.IsZero() {
		p.sent, p.giveUp = now, now.Add(r.config.TTL)
		r.resets = r.sender.wakeups.resets.Load()
	}
	p.pause = Backoff{Limit: min(time.Second, r.config.TTL/10)}
	return p
}

func (r *Request) startPolling(p *polling, now time.Time) {
	r.mu.Lock()
	if r.phase != asking {
		r.mu.Unlock()
		return // abandoned meanwhile
	}
	r.poll = p
	wait := p.next.Sub(now)
	if p.exhausted() {
		wait = 0
	}
	p.timer = time.AfterFunc(wait, r.onTimer)
	r.mu.Unlock()
	r.listen()
}

// listen has the request get its events. The timer may have ended it meanwhile.
func (r *Request) listen() {
	missed := r.sender.wakeups.enter(r)
	if r.over() {
		r.sender.wakeups.remove(r)
		return
	}
	if missed.ID != "" || r.sender.wakeups.resets.Load() != r.resets {
		r.onEvent(missed)
	}
}

// over reports that nothing more is asked for: the request was abandoned, granted or
// refused.
func (r *Request) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase != asking || r.poll.then == nil
}

// retry is how long a queued request sleeps.
func (r *Request) retry(wish time.Duration) time.Duration {
	return max(min(wish, r.config.WaitTTL/3), minSleep)
}

// onTimer sends the next request, or gives up.
func (r *Request) onTimer() {
	d := r.sender
	d.busy.Add()
	defer d.busy.Done()
	r.mu.Lock()
	p, now := r.poll, time.Now()
	if r.phase != asking || p.then == nil {
		r.mu.Unlock()
		return
	}
	switch {
	case r.inFlight && now.Before(p.giveUp):
		p.timer.Reset(p.giveUp.Sub(now))
	case r.inFlight:
		r.finish(Answer{Outcome: Refused, Err: Unavailable(p.silence(now.Sub(p.sent)))})
		return
	case p.exhausted():
		r.finish(Answer{Outcome: Refused, Err: Unavailable(p.trouble)})
		return
	case now.Before(p.next):
		p.timer.Reset(p.next.Sub(now))
	default:
		r.inFlight = true
		if r.base.IsZero() {
			r.base = now
		}
		p.begin(now, min(r.config.Timeout, r.config.TTL))
		r.mu.Unlock()
		r.ask(now)
		return
	}
	r.mu.Unlock()
}

// begin notes that a request is being sent. One that begins near the end of the
// patience, because the store wished it so or the process stood still, has a whole
// timeout for its answer.
func (p *polling) begin(now time.Time, timeout time.Duration) {
	p.again, p.mustRenew, p.sent = false, false, now
	due := now.Add(timeout)
	if late := !now.Before(p.giveUp); late || p.heard && p.giveUp.Before(due) {
		p.giveUp, p.late = due, true
	}
	p.timer.Reset(p.giveUp.Sub(now))
}

// ask makes one call of the store in the background and handles its answer.
func (r *Request) ask(now time.Time) {
	d := r.sender
	g, err := store.Grant{}, ErrClosed
	if !d.closing.Load() {
		ctx := d.acquires.within(now, r.config.Timeout)
		g, err = d.store.Acquire(ctx, r.req)
		err = explain(err, ctx.Err() != nil, now)
		ctx.leave()
	}
	r.mu.Lock()
	a := r.note(g, err, now)
	if p := r.poll; (r.phase == asking || a.Outcome == Granted) && p.then != nil {
		r.handle(a)
		return
	}
	forgotten, present := r.phase == abandoned, r.present || r.unknown
	r.mu.Unlock()
	if forgotten {
		r.clear(present)
	}
}

// handle goes on after an answer in the background. It unlocks r.mu.
func (r *Request) handle(a Answer) {
	p, now := r.poll, time.Now()
	switch a.Outcome {
	case Granted, Refused:
		r.finish(a)
		return
	case Queued:
		p.pause.Reset()
		p.heard, p.late, p.giveUp, p.trouble = true, false, r.base.Add(r.config.TTL), nil
		p.heldBy = a.HeldBy
		p.next = now.Add(r.retry(a.Retry))
		switch {
		case p.mustRenew:
			p.next = now
		case p.again:
			p.next = earlier(p.next, p.sent.Add(askGap))
		}
	case Unknown:
		p.heard, p.next, p.trouble = false, now.Add(p.pause.Next()), a.Err
		if p.exhausted() {
			r.finish(Answer{Outcome: Refused, Err: Unavailable(a.Err)})
			return
		}
	}
	p.timer.Reset(p.next.Sub(now))
	r.mu.Unlock()
}

// onEvent handles an event for this request. It is a grant if its token is newer
// than the last one that a confirmed answer told: else it is a late event of a
// promotion that had expired by then. The store counts the promoted hold's WaitTTL
// from a moment after the request that got the place, so that is where validity
// starts. Any other event is a reason to ask. So is one for a lease that will not be
// renewed, because asking again brings it to its TTL before Lock returns, and one of
// which too little is left to renew it in.
func (r *Request) onEvent(e store.Event) {
	r.sender.busy.Add()
	defer r.sender.busy.Done()
	r.mu.Lock()
	p, now := r.poll, time.Now()
	if r.phase != asking || p == nil || p.then == nil {
		r.mu.Unlock()
		return
	}
	lease := r.config.valid(r.config.WaitTTL)
	g := Grant{Token: e.Token, Spare: r.spare(e.Short), At: now, Deadline: r.base.Add(lease)}
	switch {
	case e.Token <= r.told:
		p.next = earlier(p.next, p.sent.Add(askGap))
	case r.config.Fixed || g.Deadline.Sub(now) < lease/3:
		p.next, p.mustRenew = now, true
	default:
		r.phase, r.present = granted, true
		r.sender.counts.pushed.Add(1)
		r.finish(Answer{Outcome: Granted, Grant: g})
		return
	}
	p.again = true
	if !r.inFlight {
		p.timer.Reset(p.next.Sub(now))
	}
	r.mu.Unlock()
}

// finish ends the polling and tells the outcome. It unlocks r.mu.
func (r *Request) finish(a Answer) {
	then := r.poll.then
	r.poll.then = nil
	r.poll.timer.Stop()
	r.mu.Unlock()
	r.sender.wakeups.remove(r)
	then(a)
}

// Late reports whether the store's silence that ended the polling was counted from
// a request that was itself sent late: others may have been answered meanwhile.
func (r *Request) Late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poll != nil && r.poll.late
}

// exhausted reports that another try would come too late.
func (p *polling) exhausted() bool { return p.trouble != nil && !p.next.Before(p.giveUp) }

// silence is what is known of a store of which nothing came within d.
func (p *polling) silence(d time.Duration) error {
	if p.trouble != nil {
		return fmt.Errorf("a call of the store did not return within %v, and before that: %w", d, p.trouble)
	}
	return fmt.Errorf("a call of the store did not return within %v", d)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
