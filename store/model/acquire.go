package model

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// Acquire decides a request: rules 1 to 4 of package store. handle names the
// handle that the request came through; if the request is queued, the event of
// its promotion goes there, and a later request with the same id moves it. The
// results are those of [store.Store.Acquire].
func (r *Record) Acquire(c *Call, req store.Request, handle string) (store.Grant, error) {
	r.settle(c)
	if r.isBuried(req.ID) {
		return store.Grant{}, store.ErrLost
	}
	until := c.Now + req.TTL

	// Rule 1: the id is a hold.
	if i := find(r.holds, req.ID); i >= 0 {
		h := &r.holds[i]
		h.deadline = max(h.deadline, until)
		return r.held(c, h), nil
	}

	// Rules 2 and 3: granted now.
	e := entry{
		id: req.ID, owner: req.Owner, label: req.Label, handle: handle,
		mode: req.Mode, tokens: req.Tokens, waitTTL: req.WaitTTL, since: c.Now,
	}
	if r.grantable(c, &e) {
		r.queue = without(r.queue, find(r.queue, e.id))
		e.deadline = until
		r.holds = append(r.holds, e)
		r.promoteOwner(c, e.owner)
		return r.held(c, &r.holds[find(r.holds, e.id)]), nil
	}
	if r.holdsAny(req.Owner) {
		g := store.Grant{}
		g.HeldBy, g.HeldFor = r.heldBy(c, req.Owner)
		r.leave(c, req.ID)
		return g, store.ErrUpgrade
	}

	// Rule 4: not now.
	place := find(r.queue, req.ID)
	if req.Queue {
		if place < 0 {
			place = len(r.queue)
			r.queue = append(r.queue, e)
		}
		w := &r.queue[place]
		w.handle, w.deadline = handle, c.Now+req.WaitTTL
	}
	position := place + 1
	g := store.Grant{Retry: r.retry(c, req.Owner, position)}
	g.HeldBy, g.HeldFor = r.heldBy(c, req.Owner)
	if !req.Queue {
		return g, store.ErrHeld
	}
	g.Token, g.Position = c.Tokens.Last(), position
	return g, nil
}

// isBuried says whether an id is refused.
func (r *Record) isBuried(id string) bool {
	for i := range r.buried {
		if r.buried[i].id == id {
			return true
		}
	}
	return false
}

// grantable decides rules 2 and 3 for a request that is not a hold yet. If it
// is granted, grantable gives it its token.
func (r *Record) grantable(c *Call, e *entry) bool {
	if token, ok := r.reentry(e); ok {
		e.token, e.short = token, e.tokens-1 // no token behind it is reserved for e
		return true
	}
	if !r.compatible(e) {
		return false
	}
	// An upgrade does not look at the queue. Every other request stays behind the
	// waiters ahead of it. A waiter that could be granted along with this request
	// was promoted before, so a queue that is not empty blocks, unless the
	// request is its head.
	if !r.holdsAny(e.owner) && len(r.queue) > 0 && r.queue[0].id != e.id {
		return false
	}
	first, reserved := c.Tokens.Issue(e.tokens)
	if reserved == 0 {
		return false
	}
	e.token, e.short = first, e.tokens-reserved
	return true
}

// reentry is rule 2 without the upgrade: a grant that keeps its owner's token.
func (r *Record) reentry(e *entry) (token uint64, ok bool) {
	var shared, exclusive uint64 // the owner's greatest token in each mode
	for i := range r.holds {
		h := &r.holds[i]
		switch {
		case h.owner != e.owner:
		case h.mode == store.Exclusive:
			exclusive = max(exclusive, h.token)
		default:
			shared = max(shared, h.token)
		}
	}
	if exclusive > 0 {
		return exclusive, true
	}
	return shared, shared > 0 && e.mode == store.Shared
}

// compatible says whether no hold of another owner excludes the request.
func (r *Record) compatible(e *entry) bool {
	for i := range r.holds {
		if h := &r.holds[i]; excludes(h, e) {
			return false
		}
	}
	return true
}

// excludes says whether the hold h is in the way of the request e.
func excludes(h, e *entry) bool {
	return h.owner != e.owner && (h.mode == store.Exclusive || e.mode == store.Exclusive)
}

// holdsAny says whether an owner has a hold.
func (r *Record) holdsAny(owner string) bool {
	for i := range r.holds {
		if r.holds[i].owner == owner {
			return true
		}
	}
	return false
}

// held is the answer to a request that is a hold.
func (r *Record) held(c *Call, h *entry) store.Grant {
	g := store.Grant{Held: true, Token: h.token, Short: h.short, TTL: h.deadline - c.Now}
	for i := range r.holds {
		if r.holds[i].owner == h.owner {
			g.Holds++
		}
	}
	return g
}

// heldBy is the label and the age of the oldest hold of another owner.
func (r *Record) heldBy(c *Call, owner string) (label string, age time.Duration) {
	for i := range r.holds {
		if h := &r.holds[i]; h.owner != owner {
			return h.label, h.age(c)
		}
	}
	return "", 0
}

// age is for how long the entry is a hold, or a waiter: 0 if that is not known, and
// positive otherwise, also if the clock was set back.
func (e *entry) age(c *Call) time.Duration {
	if e.since == 0 {
		return 0
	}
	return max(c.Now-e.since, 1)
}

// retry is when the last hold of another owner ends, and 2 ms more for each
// place behind the head, at most 40 ms more. The head asks first. If it has
// died, the next waiter asks soon after.
func (r *Record) retry(c *Call, owner string, position int) time.Duration {
	wait := time.Millisecond // there may be no hold in the way if the counter is empty
	for i := range r.holds {
		if h := &r.holds[i]; h.owner != owner {
			wait = max(wait, h.deadline-c.Now)
		}
	}
	behind := min(max(position-1, 0), 20)
	return wait + time.Duration(behind)*2*time.Millisecond
}
