package model

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// promote grants from the head of the queue as far as the rules allow. With
// each waiter it grants what its owner's other waiting requests may then have.
func (r *Record) promote(c *Call) {
	for len(r.queue) > 0 {
		owner := r.queue[0].owner
		if !r.promoteWaiter(c, 0) {
			return
		}
		r.promoteOwner(c, owner)
	}
}

// promoteOwner grants the waiting requests of an owner that has just been
// granted, as far as re-entry and upgrade allow.
func (r *Record) promoteOwner(c *Call, owner string) {
	for i := 0; i < len(r.queue); {
		if r.queue[i].owner == owner && r.promoteWaiter(c, i) {
			i = 0 // the new hold may allow a request that was passed over
		} else {
			i++
		}
	}
}

// promoteWaiter makes the waiter at index i a hold, if the rules allow it. Its
// client is not asking at this moment, so the hold lasts WaitTTL at first: the
// client renews it when it has the event, or it is gone soon.
func (r *Record) promoteWaiter(c *Call, i int) bool {
	w := r.queue[i]
	if !r.grantable(c, &w) {
		return false
	}
	r.queue = without(r.queue, i)
	w.deadline, w.since = c.Now+w.waitTTL, c.Now
	r.holds = append(r.holds, w)
	c.Events = append(c.Events, Event{w.handle, store.Event{ID: w.id, Token: w.token, Short: w.short}})
	return true
}

// Renew sets the deadline of the hold with ref.ID to ref.TTL from now. An id
// that is not a live hold is [store.ErrLost].
func (r *Record) Renew(c *Call, ref store.Ref) error {
	r.settle(c)
	i := find(r.holds, ref.ID)
	if i < 0 {
		return store.ErrLost
	}
	r.holds[i].deadline = c.Now + ref.TTL
	return nil
}

// Release removes the hold or place with ref.ID and promotes waiters; without
// one the error is [store.ErrLost]. With ref.Bury the id is refused from now
// on, until ref.TTL has passed since its latest burial.
func (r *Record) Release(c *Call, ref store.Ref) error {
	r.settle(c)
	if ref.Bury {
		r.bury(ref.ID, c.Now+ref.TTL)
	}
	if !r.leave(c, ref.ID) {
		return store.ErrLost
	}
	return nil
}

// bury refuses an id until deadline. Burying it again with a shorter time
// shortens nothing: the earlier promise stands.
func (r *Record) bury(id string, deadline time.Duration) {
	for i := range r.buried {
		if g := &r.buried[i]; g.id == id {
			g.deadline = max(g.deadline, deadline)
			return
		}
	}
	r.buried = append(r.buried, grave{id, deadline})
}

// leave removes the hold or place of id and promotes.
func (r *Record) leave(c *Call, id string) (wasThere bool) {
	hold, place := find(r.holds, id), find(r.queue, id)
	if hold < 0 && place < 0 {
		return false
	}
	r.holds = without(r.holds, hold)
	r.queue = without(r.queue, place)
	r.promote(c)
	return true
}

// Break removes all holds, promotes waiters and returns how many holds it
// removed.
func (r *Record) Break(c *Call) (broken int) {
	r.settle(c)
	broken = len(r.holds)
	clear(r.holds)
	r.holds = r.holds[:0]
	r.promote(c)
	return broken
}

// Raiser is a Counter to which tokens can come from outside, as
// [store.TokenRaiser] needs it.
type Raiser interface {
	Counter

	// Reserve makes the n tokens from first on count as issued, whether or not
	// some of them were issued before.
	Reserve(first uint64, n int)

	// Take makes the n tokens from first on count as issued and returns true,
	// or returns false if one of them was issued before.
	Take(first uint64, n int) bool
}

// Raise gives the hold with that id a token from outside and returns the token
// that the hold has then; see [store.TokenRaiser]. tokens is how many are
// reserved from it on.
func (r *Record) Raise(c *Call, counter Raiser, id string, token uint64, tokens int) (uint64, error) {
	r.settle(c)
	i := find(r.holds, id)
	if i < 0 {
		return 0, store.ErrLost
	}
	h := &r.holds[i]
	switch {
	case h.token >= token:
	case h.mode == store.Exclusive:
		// The counter may be further, since it serves other names. No token of
		// this name was issued since the hold began, so token is the greatest.
		counter.Reserve(token, tokens)
		h.token = token
	case counter.Take(token, tokens):
		h.token = token
	default:
		// Another reader of this name may have been given token.
		first, reserved := counter.Issue(tokens)
		if reserved == 0 {
			return h.token, nil
		}
		h.token = first
	}
	return h.token, nil
}
