package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

// acquisition is one call that takes a lock: re-entry here if it can be, else a
// turn in the process's line, else an attempt at the store.
type acquisition struct {
	client *Client
	ctx    context.Context
	terms  *terms
	mode   store.Mode
	wait   bool
	over   error // of ctx, before the shard was locked: contexts are other people's code

	party  *party
	ticket *ticket
	counts bool // among the client's waiters
}

// acquire takes the lock of t for owner. Its errors are bare; the door wraps them.
func (c *Client) acquire(ctx context.Context, t *terms, owner Owner, mode store.Mode, wait bool) (*Hold, error) {
	if c.isClosing() || !c.calls.enter() {
		return nil, ErrClosed
	}
	defer c.calls.exit() // so that Close waits for what a grant that comes too late leaves to do
	a := &acquisition{client: c, ctx: ctx, terms: t, mode: mode, wait: wait}
	a.over = a.ended()
	a.party = c.names.join(t.name, owner)
	h, err := a.lineUp()
	sh := a.party.local.shard
	sh.mu.Unlock()
	if h == nil && err == nil {
		if err = a.awaitTurn(); err == nil {
			h, err = a.take()
		}
	}
	if a.counts {
		c.waiters.Add(-1)
	}
	sh.mu.Lock()
	late := a.served() // a hold that came while this call was giving up
	a.party.local.line.leave(a.ticket)
	a.party.leave()
	sh.mu.Unlock()
	if late != nil {
		late.abandon()
	}
	return h, err
}

// lineUp re-enters, or joins the line if this call has to. The shard is locked.
func (a *acquisition) lineUp() (*Hold, error) {
	if h, err := a.reenter(); h != nil || err != nil {
		return h, err
	}
	if a.over != nil {
		return nil, a.over
	}
	if !a.party.owner.private || len(a.party.grants) > 0 {
		return nil, nil
	}
	if h := a.joinReaders(); h != nil {
		return h, nil
	}
	if !a.wait {
		return nil, nil
	}
	a.ticket = a.party.local.line.join(a.party, a.terms, a.mode)
	if a.ticket.turn != nil && !a.count() {
		return nil, ErrTooManyWaiters
	}
	return nil, nil
}

// reenter returns a handle on a grant that the owner has here in this mode; nil
// if there is none. The shard is locked. A reader's lock under one's own
// writer's lock is not re-entry here: the store has to know of it, so that the
// writer's can be released first.
func (a *acquisition) reenter() (*Hold, error) {
	p := a.party
	if p.lost > 0 {
		return nil, errNested
	}
	for _, g := range p.grants {
		if !g.tenure.lease.Valid() {
			// The watchdog has not come round to declaring it. It will, and
			// then tell; here it is enough not to build on it.
			return nil, errNested
		}
	}
	for _, g := range p.grants {
		switch {
		case g.tenure.attempt.req.Mode != a.mode:
			continue
		case p.live >= maxHandles:
			return nil, ErrTooManyHolds
		case a.over != nil:
			return nil, a.over
		}
		return g.handle(), nil
	}
	return nil, nil
}

// ended is why the call cannot go on, with the cause that a hold's context has.
func (a *acquisition) ended() error {
	err := a.ctx.Err()
	if err == nil {
		return nil
	}
	switch cause := context.Cause(a.ctx); {
	case errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// count makes this call one of the client's waiters, if it may be one more.
func (a *acquisition) count() bool {
	if a.counts {
		return true
	}
	a.counts = true // counted out again by acquire in any case
	return a.client.waiters.Add(1) <= int64(a.client.opts.MaxWaiters)
}

// awaitTurn waits for the front of the line.
func (a *acquisition) awaitTurn() error {
	if a.ticket == nil || a.ticket.turn == nil {
		return nil
	}
	select {
	case <-a.ticket.turn:
		return nil
	case <-a.ctx.Done():
		return a.ended()
	case <-a.client.closing:
		return ErrClosed
	}
}

// maxAgain is how often in a row a call goes on with another id when the store has given
// up the one that it asked by. One that had been asked by for longer than the TTL begins
// a new row.
const maxAgain = 3

// take gets a hold: from another goroutine that had the lock here, from a call of
// the same owner that was granted while this one stood in line, or from the store.
func (a *acquisition) take() (*Hold, error) {
	for again := 0; ; again++ {
		began := time.Now()
		a.over = a.ended()
		at, h, err := a.enroll()
		if at == nil {
			return a.usable(h, err)
		}
		if a.wait {
			a.client.pushes.add(at)
		}
		won, err := a.ask(at)
		h, e := a.conclude(err)
		if e != nil {
			e.takeOver(err == errServed || a.gaveUp(err), won, err)
			return a.usable(h, err)
		}
		if a.wait {
			a.client.pushes.remove(at)
		}
		if h == nil && err == nil {
			return a.install(at, won)
		}
		at.discard(err)
		if time.Since(began) > a.terms.ttl {
			again = 0
		}
		if h != nil || again == maxAgain || !a.outlives(at, err) {
			return a.usable(h, err)
		}
	}
}

// outlives reports whether a call that waits goes on after its asking by at ended with
// err: the store will not grant that id any more, which says nothing of the lock. A
// store that says so of one that is new to it will say it of the next one too.
func (a *acquisition) outlives(at *attempt, err error) bool {
	return a.wait && errors.Is(err, ErrLost) && !errors.Is(err, errLate) && at.mayBePresent() && a.ctx.Err() == nil
}

// enroll makes this call one that asks at the store, by the attempt that it
// returns, unless it need not or cannot.
func (a *acquisition) enroll() (*attempt, *Hold, error) {
	p, tokens := a.party, 1
	sh := p.local.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if t := a.ticket; t != nil {
		if h := a.served(); h != nil || t.failed != nil {
			return nil, h, t.failed
		}
		if p.attempts == 0 && a.terms.spans() && (a.mode == store.Shared || len(p.local.parties) > 1) {
			tokens += a.terms.handoffs
		}
	}
	if h, err := a.reenter(); h != nil || err != nil { // another call of its owner was quicker
		return nil, h, err
	}
	if err := p.standAlone(); err != nil {
		return nil, nil, err
	}
	at := a.client.newAttempt(a.terms, a.mode, a.wait)
	at.req.Owner, at.req.Tokens = p.id, tokens
	if a.ticket != nil {
		a.ticket.attempt = at
	}
	p.attempts++
	return at, nil, nil
}

// served takes what the ticket was served, if anything. The shard is locked.
func (a *acquisition) served() *Hold {
	if a.ticket == nil {
		return nil
	}
	h := a.ticket.hold
	a.ticket.hold = nil
	return h
}

// isServed reports whether served has something to take.
func (a *acquisition) isServed() bool {
	if a.ticket == nil {
		return false
	}
	sh := a.party.local.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return a.ticket.hold != nil
}

// conclude ends the asking. It returns what the ticket was served meanwhile, and
// the envoy that keeps its place at the store: for those who come next, or for the
// readers who rely on it when its own call gives up.
func (a *acquisition) conclude(err error) (*Hold, *envoy) {
	t := a.ticket
	if t == nil {
		return nil, nil
	}
	sh, l, gaveUp := a.party.local.shard, &a.party.local.line, a.gaveUp(err)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	silent := errors.Is(err, ErrUnavailable) && !gaveUp
	if silent && !t.attempt.pace.late {
		l.despair(err, a.terms)
	}
	if l.reader == t && l.covered.Len() > 0 {
		switch {
		case gaveUp && t.attempt.suits(t):
			l.leavePlace(t)
			a.party.rename() // a new call of it may have come
		case silent:
			l.reader = nil
			l.uncover(err)
		}
	}
	t.attempt = nil
	return a.served(), t.envoy
}

// gaveUp reports whether err is that the call's context has ended.
func (a *acquisition) gaveUp(err error) bool {
	return err != nil && errors.Is(err, a.ctx.Err())
}

// install turns what the store granted into a hold, unless it is no use any
// more.
func (a *acquisition) install(at *attempt, won award) (*Hold, error) {
	p := a.party
	sh := p.local.shard
	n := newTenure(sh, at, won)
	sh.mu.Lock()
	h, err := a.served(), a.refuses(n)
	admitted := h == nil && err == nil
	if admitted {
		n.buildOn(p)
		h = n.begin(p)
		if a.ticket != nil && a.mode == store.Shared {
			n.openTo(p.local)
		}
		p.local.line.leave(a.ticket) // last, for it admits who comes next
		a.ticket = nil
	} else {
		n.lease.Disarm()
	}
	sh.mu.Unlock()
	if !admitted {
		at.discard(nil)
	}
	if h == nil {
		return nil, err
	}
	return a.usable(h, nil)
}

// usable looks at the clock as the last thing, so that a pause on the way, of the
// process or of the network, ends in an error and never in a hold that is not.
func (a *acquisition) usable(h *Hold, err error) (*Hold, error) {
	switch {
	case h == nil:
		return nil, err
	case h.Err() == nil:
		return h, nil
	}
	if errors.Is(h.unlock(), ErrClosed) {
		return nil, ErrClosed
	}
	return nil, errLate
}

// refuses says why a grant cannot become a hold. The shard is locked.
func (a *acquisition) refuses(n *tenure) error {
	switch {
	case a.client.isClosing():
		return ErrClosed
	case a.party.lost > 0:
		return errNested
	case !n.lease.Valid():
		return errLate
	}
	return nil
}
