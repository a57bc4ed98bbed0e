package request

import (
	"context"
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
	then  func(Answer) // is called once, with a grant or a refusal; nil: the polling is over
	timer *time.Timer  // fires at next
	sent  time.Time    // sending of the last request
	next  time.Time    // when to ask; zero: a request was sent, and its answer is not looked at yet
	wish  time.Time    // when to ask by an event that came after the last sending; zero: none
	until time.Time    // patience lasts at least until then; zero: no request was sent since the last confirmed one
	pause Backoff
}

// Poll goes on in the background from answer, which was Queued or Unknown, until the request is granted
// or certainly refused. Then it calls then once, unless Abandon was called before: on a timer's or the
// store's goroutine, or before Poll returns if an event came earlier. So the caller holds no mutex. An
// unknown outcome is asked again under the same id with growing pauses, until nothing has been confirmed
// for a whole TTL: that is a refusal with ErrUnavailable.
func (r *Request) Poll(answer Answer, then func(Answer)) {
	now := time.Now()
	r.mu.Lock()
	if r.phase != asking {
		r.mu.Unlock()
		return // abandoned meanwhile
	}
	r.begin(now) // patience counts from here if no request was sent
	r.poll = &polling{
		then: then, sent: r.base, until: r.base.Add(r.timeout()),
		pause: Backoff{Limit: min(time.Second, r.config.TTL/10)},
	}
	r.poll.timer = time.AfterFunc(r.plan(answer, now), r.onTimer)
	r.mu.Unlock()
	r.listen()
}

// Start is Poll for a request that was not sent yet: it is sent in the background.
func (r *Request) Start(then func(Answer)) { r.Poll(Answer{Outcome: Unsent}, then) }

// listen has the request get its events. The timer may have ended it meanwhile.
func (r *Request) listen() {
	missed := r.sender.wakeups.enter(r)
	r.mu.Lock()
	over := r.poll.then == nil
	r.mu.Unlock()
	if over {
		r.sender.wakeups.remove(r)
	} else if missed.ID != "" || r.sender.wakeups.resets.Load() != r.resets {
		r.onEvent(missed)
	}
}

// plan says when to ask again after an answer, and returns how long that is. r.mu is locked.
func (r *Request) plan(a Answer, now time.Time) (wait time.Duration) {
	p := r.poll
	p.next = now
	switch a.Outcome {
	case Queued:
		p.pause.Reset()
		p.until = time.Time{}
		p.next = earlier(now.Add(max(min(a.Retry, r.config.WaitTTL/3), minSleep)), p.wish)
	case Unknown:
		p.next = now.Add(p.pause.Next())
		if r.exhausted() {
			return 0 // the timer gives up at once: no later try would be in time
		}
	}
	return p.next.Sub(now)
}

// giveUp is when to give up unless an answer is confirmed before. r.mu is locked.
func (r *Request) giveUp() time.Time {
	if end := r.base.Add(r.config.TTL); end.After(r.poll.until) {
		return end
	}
	return r.poll.until
}

// exhausted reports that the store is in trouble and another try would come too late. r.mu is locked.
func (r *Request) exhausted() bool { return r.trouble() != nil && !r.poll.next.Before(r.giveUp()) }

// onTimer sends the next request, or gives up.
func (r *Request) onTimer() {
	r.sender.busy.Add()
	defer r.sender.busy.Done()
	r.mu.Lock()
	p, now := r.poll, time.Now()
	switch {
	case p.then == nil || p.next.IsZero():
		r.mu.Unlock()
		return
	case r.exhausted():
		late := p.until.After(r.base.Add(r.config.TTL))
		r.finish(Answer{Outcome: Refused, Err: Unavailable(r.trouble()), Late: late})
		return
	case now.Before(p.next): // this firing is late, and the timer was set again
		r.mu.Unlock()
		return
	}
	// The first request after a confirmed one has a whole timeout for its answer, however late it is sent,
	// and what fails in that time is repeated. So has one that is late because the process stood still.
	timeout := r.timeout()
	if left := r.giveUp().Sub(now); p.until.IsZero() || left <= 0 {
		p.until = now.Add(timeout)
	} else {
		timeout = min(timeout, left)
	}
	p.sent, p.wish, p.next = now, time.Time{}, time.Time{}
	r.mu.Unlock()
	a := Answer{Outcome: Unknown, Err: errNoReturn} // unless the store returns
	defer func() { r.wentOn(a) }()
	a = r.send(context.Background(), now, timeout)
}

// wentOn goes on after a request in the background.
func (r *Request) wentOn(a Answer) {
	r.mu.Lock()
	switch p := r.poll; {
	case p.then == nil: // an event has granted the request, or Abandon has ended it
		r.mu.Unlock()
	case a.Outcome == Granted || a.Outcome == Refused:
		r.finish(a)
	default:
		p.timer.Reset(r.plan(a, time.Now()))
		r.mu.Unlock()
	}
}

// onEvent handles an event for this request. It is a grant if its token is newer
// than the last one that a confirmed answer told: else it is a late event of a
// promotion that had expired by then. The store counts the promoted hold's WaitTTL
// from a moment after the request that got the place, so that is where validity
// starts. Any other event is a reason to ask. So is one for a lease that will not be
// renewed, because asking again brings it to its TTL before Lock returns, one of
// which too little is left to renew it in, and one for a nested request.
func (r *Request) onEvent(e store.Event) {
	r.sender.busy.Add()
	defer r.sender.busy.Done()
	r.mu.Lock()
	p, now := r.poll, time.Now()
	if p.then == nil {
		r.mu.Unlock()
		return
	}
	lease := r.config.valid(r.config.WaitTTL)
	g := Grant{Token: e.Token, Spare: r.spare(e.Short), At: now, Deadline: r.base.Add(lease)}
	wish := now
	switch {
	case e.Token <= r.lastToken:
		wish = p.sent.Add(askGap)
	case r.nested || r.config.Fixed || g.Deadline.Sub(now) < lease/3:
	default:
		r.phase, r.present = granted, true
		r.sender.pushed.Add(1)
		r.finish(Answer{Outcome: Granted, Grant: g})
		return
	}
	p.wish = earlier(wish, p.wish)
	if !p.next.IsZero() {
		p.next = earlier(p.next, p.wish)
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

// earlier returns the earlier of two times. A zero b is none.
func earlier(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
