package memory

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// lock is the state of one name. Its methods are the model of package store,
// to the letter; each expects that settle has run at t.now.
type lock struct {
	holds  []*entry // oldest grant first
	queue  []*entry // head first
	buried map[string]time.Time
}

// entry is a live hold or, in the queue, a live waiter.
type entry struct {
	store.Request
	via      *Store // whose sinks hear of a promotion
	token    uint64 // of a hold
	deadline time.Time
}

// turn is one operation: its present, and the events it causes.
type turn struct {
	now    time.Time
	tokens *atomic.Uint64
	wakes  []wake
}

type wake struct {
	via   *Store
	event store.Event
}

// issue reserves n consecutive tokens and returns the first.
func (t *turn) issue(n int) uint64 { return t.tokens.Add(uint64(n)) - uint64(n) + 1 }

// reserve makes the n tokens from first on count as issued.
func (t *turn) reserve(first uint64, n int) {
	last := first + uint64(n) - 1
	for {
		issued := t.tokens.Load()
		if issued >= last || t.tokens.CompareAndSwap(issued, last) {
			return
		}
	}
}

// take makes the n tokens from first on count as issued if none of them does.
func (t *turn) take(first uint64, n int) bool {
	for {
		issued := t.tokens.Load()
		if issued >= first {
			return false
		}
		if t.tokens.CompareAndSwap(issued, first+uint64(n)-1) {
			return true
		}
	}
}

func (t *turn) alive(deadline time.Time) bool { return deadline.After(t.now) }

// settle removes what has died, which is a removal like any other.
func (l *lock) settle(t *turn) {
	died := func(e *entry) bool { return !t.alive(e.deadline) }
	l.holds = slices.DeleteFunc(l.holds, died)
	l.queue = slices.DeleteFunc(l.queue, died)
	for id, deadline := range l.buried {
		if !t.alive(deadline) {
			delete(l.buried, id)
		}
	}
	l.promote(t)
}

func (l *lock) acquire(t *turn, req store.Request, via *Store) (store.Grant, error) {
	if _, ok := l.buried[req.ID]; ok {
		return store.Grant{}, store.ErrLost
	}
	until := t.now.Add(req.TTL)

	// Rule 1: the id is a hold.
	if h := find(l.holds, req.ID); h != nil {
		if until.After(h.deadline) {
			h.deadline = until
		}
		return l.held(t, h), nil
	}

	// Rules 2 and 3: granted now.
	e := &entry{Request: req, via: via}
	if token, ok := l.grantable(t, e); ok {
		l.grant(t, e, token, until)
		return l.held(t, e), nil
	}
	if l.holdsAny(req.Owner) {
		l.leave(t, req.ID)
		return store.Grant{}, store.ErrUpgrade
	}

	// Rule 4: not now.
	place := find(l.queue, req.ID)
	if req.Queue {
		if place == nil {
			place = e
			l.queue = append(l.queue, e)
		}
		place.via, place.deadline = via, t.now.Add(req.WaitTTL)
	}
	position := slices.Index(l.queue, place) + 1
	g := store.Grant{Retry: l.retry(t, req.Owner, position)}
	if !req.Queue {
		return g, store.ErrHeld
	}
	g.Token, g.Position = t.tokens.Load(), position
	return g, nil
}

// grantable decides rules 2 and 3 for a request that is no hold yet, and
// issues the token if it needs a new one.
func (l *lock) grantable(t *turn, e *entry) (token uint64, ok bool) {
	if token, ok := l.reentry(e); ok {
		return token, true
	}
	if !l.compatible(e) {
		return 0, false
	}
	// An upgrade asks nobody in the queue; everyone else stands behind those
	// ahead. Whoever could pass with it was promoted before it asked, so a
	// queue that is not empty blocks, unless it is at the head itself.
	if !l.holdsAny(e.Owner) && len(l.queue) > 0 && l.queue[0].ID != e.ID {
		return 0, false
	}
	return t.issue(e.Tokens), true
}

// reentry is rule 2 without the upgrade: a grant that keeps its owner's token.
func (l *lock) reentry(e *entry) (token uint64, ok bool) {
	var shared, exclusive uint64 // the owner's greatest token in each mode
	for _, h := range l.holds {
		switch {
		case h.Owner != e.Owner:
		case h.Mode == store.Exclusive:
			exclusive = max(exclusive, h.token)
		default:
			shared = max(shared, h.token)
		}
	}
	if exclusive > 0 {
		return exclusive, true
	}
	return shared, shared > 0 && e.Mode == store.Shared
}

// compatible: with each live hold of another owner.
func (l *lock) compatible(e *entry) bool {
	return !slices.ContainsFunc(l.holds, func(h *entry) bool {
		return h.Owner != e.Owner && (h.Mode == store.Exclusive || e.Mode == store.Exclusive)
	})
}

func (l *lock) holdsAny(owner string) bool {
	return slices.ContainsFunc(l.holds, func(h *entry) bool { return h.Owner == owner })
}

// grant makes e a hold, and with it those waiting requests of its owner that
// re-entry now allows.
func (l *lock) grant(t *turn, e *entry, token uint64, until time.Time) {
	l.queue = slices.DeleteFunc(l.queue, func(w *entry) bool { return w.ID == e.ID })
	e.token, e.deadline = token, until
	l.holds = append(l.holds, e)
	for _, w := range slices.Clone(l.queue) {
		if w.Owner != e.Owner || find(l.queue, w.ID) == nil {
			continue
		}
		if token, ok := l.grantable(t, w); ok {
			l.grantWaiting(t, w, token)
		}
	}
}

// grantWaiting grants a request whose client is not asking just now: it has
// WaitTTL to show that it is still there, and is told by an event.
func (l *lock) grantWaiting(t *turn, w *entry, token uint64) {
	t.wakes = append(t.wakes, wake{w.via, store.Event{ID: w.ID, Token: token}})
	l.grant(t, w, token, t.now.Add(w.WaitTTL))
}

// promote grants from the head of the queue as far as the rules allow.
func (l *lock) promote(t *turn) {
	for len(l.queue) > 0 {
		token, ok := l.grantable(t, l.queue[0])
		if !ok {
			return
		}
		l.grantWaiting(t, l.queue[0], token)
	}
}

func (l *lock) renew(t *turn, ref store.Ref) error {
	h := find(l.holds, ref.ID)
	if h == nil {
		return store.ErrLost
	}
	h.deadline = t.now.Add(ref.TTL)
	return nil
}

// raise gives a hold a token from outside. An exclusive hold gets it even if the
// counter, which serves other names too, is further: nobody else has got a token
// of this name since the hold did. Among shared ones somebody may have.
func (l *lock) raise(t *turn, id string, token uint64, tokens int) (uint64, error) {
	h := find(l.holds, id)
	switch {
	case h == nil:
		return 0, store.ErrLost
	case h.token >= token:
	case h.Mode == store.Exclusive:
		t.reserve(token, tokens)
		h.token = token
	case t.take(token, tokens):
		h.token = token
	default:
		h.token = t.issue(tokens)
	}
	return h.token, nil
}

func (l *lock) release(t *turn, ref store.Ref) error {
	if ref.Bury {
		if l.buried == nil {
			l.buried = make(map[string]time.Time)
		}
		l.buried[ref.ID] = t.now.Add(ref.TTL)
	}
	if !l.leave(t, ref.ID) {
		return store.ErrLost
	}
	return nil
}

// leave removes the hold or place of id and promotes.
func (l *lock) leave(t *turn, id string) (wasThere bool) {
	before := len(l.holds) + len(l.queue)
	same := func(e *entry) bool { return e.ID == id }
	l.holds = slices.DeleteFunc(l.holds, same)
	l.queue = slices.DeleteFunc(l.queue, same)
	if len(l.holds)+len(l.queue) == before {
		return false
	}
	l.promote(t)
	return true
}

func (l *lock) breakAll(t *turn) (broken int) {
	broken = len(l.holds)
	l.holds = nil
	l.promote(t)
	return broken
}

func (l *lock) held(t *turn, h *entry) store.Grant {
	g := store.Grant{Held: true, Token: h.token, TTL: h.deadline.Sub(t.now)}
	for _, other := range l.holds {
		if other.Owner == h.Owner {
			g.Holds++
		}
	}
	return g
}

// retry is when the last hold of others runs out, and 2 ms more for each place
// behind the head, 40 ms at most: the head asks first, and when it has died
// the next one is not far behind.
func (l *lock) retry(t *turn, owner string, position int) time.Duration {
	var wait time.Duration
	for _, h := range l.holds {
		if h.Owner != owner {
			wait = max(wait, h.deadline.Sub(t.now))
		}
	}
	behind := min(max(position-1, 0), 20)
	return wait + time.Duration(behind)*2*time.Millisecond
}

func (l *lock) inspect(t *turn, s *store.State) {
	describe := func(entries []*entry) (list []store.Entry) {
		for _, e := range entries {
			list = append(list, store.Entry{
				ID: store.Short(e.ID), Owner: store.Short(e.Owner), Mode: e.Mode,
				Token: e.token, Remaining: e.deadline.Sub(t.now), Label: e.Label,
			})
		}
		return list
	}
	s.Holders, s.Queue = describe(l.holds), describe(l.queue)
}

// empty: nothing is left that a later operation would need.
func (l *lock) empty() bool {
	return len(l.holds) == 0 && len(l.queue) == 0 && len(l.buried) == 0
}

// used: somebody who is alive holds or waits.
func (l *lock) used(now time.Time) bool {
	lives := func(e *entry) bool { return e.deadline.After(now) }
	return slices.ContainsFunc(l.holds, lives) || slices.ContainsFunc(l.queue, lives)
}

// dead: nothing in it is alive, not even what is buried.
func (l *lock) dead(now time.Time) bool {
	if l.used(now) {
		return false
	}
	for _, deadline := range l.buried {
		if deadline.After(now) {
			return false
		}
	}
	return true
}

func find(entries []*entry, id string) *entry {
	i := slices.IndexFunc(entries, func(e *entry) bool { return e.ID == id })
	if i < 0 {
		return nil
	}
	return entries[i]
}
