package dlock

import (
	"errors"
	"fmt"
	"time"
)

// askGap is the shortest time between two requests of one attempt that are not
// the store's own wish: it bounds what a flood of events can cost.
const askGap = 10 * time.Millisecond

// minSleep keeps a store that answers "ask again at once" from a hot loop.
const minSleep = time.Millisecond

// pace is where the asking of an attempt stands.
type pace struct {
	next     time.Time // when to ask
	giveUp   time.Time // unless an answer is confirmed before
	sent     time.Time // the last request
	heard    bool      // the request before was confirmed
	late     bool      // giveUp is what was left to a request that was itself late
	inFlight bool
	again    bool  // a reason to ask again came while a request was in flight
	granted  bool  // that reason was a grant that an answer has to make whole
	trouble  error // of the last request, if it had no certain outcome
	pause    backoff
}

// silence is what is known of a store of which nothing came within d.
func (p *pace) silence(d time.Duration) error {
	if p.trouble != nil {
		return fmt.Errorf("a call of the store did not return within %v, and before that: %w", d, p.trouble)
	}
	return fmt.Errorf("a call of the store did not return within %v", d)
}

// errServed ends the asking of a call that has got its hold inside the process.
var errServed = errors.New("served by another goroutine")

// ask sends the attempt's request until the store grants it, and while it does
// not, sleeps until there is a reason to ask again: an event, the store's
// reconnection, or the time by which the store says something will have
// happened. Events make it fast; none is needed for progress.
//
// An unknown outcome is asked again under the same id, with growing pauses,
// until nothing has been confirmed for a whole TTL, or StoreTimeout for a try. An ask
// that begins near the end of that, because the store wished it so or the process
// stood still, has StoreTimeout for its answer.
// After an error the attempt has to be left; after errServed another call of ask
// may go on with it.
func (a *acquisition) ask(at *attempt) (award, error) {
	patience := a.terms.ttl
	if !a.wait {
		patience = a.terms.timeout
	}
	p, now := &at.pace, time.Now()
	if p.next.IsZero() {
		*p = pace{next: now, giveUp: now.Add(patience), pause: backoff{limit: min(time.Second, patience/10)}}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for ; ; now = time.Now() {
		if !p.inFlight && !now.Before(p.next) {
			p.inFlight, p.again, p.granted, p.sent = true, false, false, now
			due := now.Add(min(a.terms.timeout, patience))
			if late := !now.Before(p.giveUp); late || p.heard && p.giveUp.Before(due) {
				p.giveUp, p.late = due, true // it is we who ask so late, not the store that is silent
			}
			at.send(now)
		}
		if p.inFlight {
			if !now.Before(p.giveUp) && len(at.replies) == 0 {
				return award{}, unavailable(p.silence(patience))
			}
			timer.Reset(p.giveUp.Sub(now))
		} else {
			timer.Reset(p.next.Sub(now))
		}

		select {
		case r := <-at.replies:
			p.inFlight = false
			switch {
			case r.err == nil && r.grant.Held:
				return at.byReply(r)
			case r.err == nil && !a.wait: // a store that has it wait all the same
				return award{}, ErrHeld
			case r.err == nil:
				if !a.count() {
					return award{}, ErrTooManyWaiters
				}
				p.pause.reset()
				p.heard, p.late, p.giveUp, p.trouble = true, false, r.sent.Add(patience), nil
				p.next = time.Now().Add(max(min(r.grant.Retry, a.terms.waitTTL/3), minSleep))
				switch {
				case p.granted:
					p.next = time.Now()
				case p.again:
					p.next = earlier(p.next, p.sent.Add(askGap))
				}
			case certain(r.err):
				return award{}, r.err
			default:
				p.heard, p.next, p.trouble = false, time.Now().Add(p.pause.next()), r.err
				if !p.next.Before(p.giveUp) {
					return award{}, unavailable(r.err)
				}
			}

		case <-at.wake:
			if a.isServed() {
				return award{}, errServed
			}
			won, ok, hint := at.byEvent()
			switch {
			case ok:
				return won, nil
			case hint:
				p.next, p.granted = time.Now(), true
			default:
				p.next = earlier(p.next, p.sent.Add(askGap))
			}
			p.again = true

		case <-timer.C:
		case <-a.ctx.Done():
			return award{}, a.ended()
		case <-a.client.closing:
			return award{}, ErrClosed
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
