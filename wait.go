package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// acquisition is one call that takes a lock: re-entry here if it can be, else a
// turn in the process's line, else an attempt at the store.
type acquisition struct {
	client *Client
	ctx    context.Context
	terms  *terms
	mode   store.Mode
	wait   bool

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
	a.party.local.line.leave(a.ticket)
	a.party.leave()
	sh.mu.Unlock()
	return h, err
}

// lineUp re-enters, or joins the line if this call has to. The shard is locked.
func (a *acquisition) lineUp() (*Hold, error) {
	if h, err := a.reenter(); h != nil || err != nil {
		return h, err
	}
	if err := a.ended(); err != nil {
		return nil, err
	}
	if !a.wait || !a.party.owner.private || len(a.party.grants) > 0 {
		return nil, nil
	}
	a.ticket = a.party.local.line.join(a.party, a.mode)
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
		if !g.lease.Valid() {
			// The watchdog has not come round to declaring it. It will, and
			// then tell; here it is enough not to build on it.
			return nil, errNested
		}
	}
	for _, g := range p.grants {
		switch {
		case g.attempt.req.Mode != a.mode:
			continue
		case p.live >= maxHandles:
			return nil, ErrTooManyHolds
		case a.ctx.Err() != nil:
			return nil, a.ended()
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
	if cause := context.Cause(a.ctx); cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
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

// take gets a grant from the store, or from a call of the same owner that was
// granted while this one stood in line.
func (a *acquisition) take() (*Hold, error) {
	if a.ticket != nil && a.ticket.turn != nil {
		sh := a.party.local.shard
		sh.mu.Lock()
		h, err := a.reenter()
		sh.mu.Unlock()
		if h != nil || err != nil {
			return h, err
		}
	}
	at := a.client.newAttempt(a.terms, a.party.id, a.mode, a.wait)
	if a.wait {
		a.client.pushes.add(at)
		defer a.client.pushes.remove(at)
	}
	won, err := a.ask(at)
	if err != nil {
		at.leave()
		return nil, err
	}
	return a.install(at, won)
}

// install turns what the store granted into a hold, unless it is no use any
// more. The clock is read as the last thing, so that a pause on the way, of the
// process or of the network, ends in an error and never in a hold that is not.
func (a *acquisition) install(at *attempt, won award) (*Hold, error) {
	g := &grant{client: a.client, party: a.party, attempt: at, token: won.token}
	g.lease.Value = g
	t := watchdog.Terms{Deadline: won.deadline, Urgent: won.pushed}
	if !a.terms.fixed {
		t.Validity = a.terms.ttl - margin(a.terms.ttl)
	}
	if a.terms.maxHold > 0 {
		t.Last = time.Now().Add(a.terms.maxHold)
	}
	a.client.dog.Keep(&g.lease, t)

	p := a.party
	sh := p.local.shard
	sh.mu.Lock()
	err := a.refuses(g)
	var h *Hold
	if err == nil {
		h = g.handle()
		p.grants = append(p.grants, g)
		p.local.line.excuse(p)
		p.local.line.leave(a.ticket) // last, for it admits who comes next
		a.ticket = nil
	} else {
		g.over = true
		g.lease.Disarm()
	}
	sh.mu.Unlock()
	if err == nil && h.Err() != nil {
		err = errLate
		if errors.Is(h.unlock(), ErrClosed) {
			err = ErrClosed
		}
		return nil, err
	}
	if err != nil {
		a.client.cleaner.add(at.ref())
		return nil, err
	}
	return h, nil
}

// refuses says why a grant cannot become a hold. The shard is locked.
func (a *acquisition) refuses(g *grant) error {
	switch {
	case a.client.isClosing():
		return ErrClosed
	case a.party.lost > 0:
		return errNested
	case !g.lease.Valid():
		return errLate
	}
	return nil
}
