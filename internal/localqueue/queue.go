// Package localqueue is the queue of one lock's name inside one process: which
// calls wait, which of them are at the front, and which request asks the store
// for those at the front. A thousand goroutines so cost the store one waiter.
//
// The front is the first waiter if it is a writer, or the leading run of readers.
// A [Place] is one request at the store, or one that is about to be sent. Each
// waiter at the front has exactly one place that asks for it: its own, or one that
// it follows.
//
// A Queue is a state machine without clock, goroutines, locks or I/O. The caller
// reports what happened and carries out the [Action]s that a method returns. It
// guards the queue by a mutex of its own.
package localqueue

import "github.com/dlock-go/dlock/store"

// Action is something the caller has to do after an event.
type Action struct {
	Wake     *Waiter // its state has changed: let its call look
	Unwanted *Place  // a place in the background that no waiter relies on any more
}

// Queue is the queue of one name. Its zero value is empty and ready to use.
type Queue struct {
	head, tail *Waiter
	waiting    *Waiter // the first that is not at the front; nil if there is none
	front      int     // waiters at the front
	mode       store.Mode
	// By mode: the place that waiters of its kind follow. The one of the other mode is
	// what waiters that have left the front had asked for; waiters may come back to it.
	keepers [2]*Place

	actions []Action // of the event under way; reused
}

// ReaderMayJoin reports whether a reader that comes now would stand before every
// waiting writer, so that it may share a hold that other readers have.
func (q *Queue) ReaderMayJoin() bool {
	return q.waiting == nil && (q.front == 0 || q.mode == store.Shared)
}

// Join puts w at the end of the queue. The caller looks at w.State afterwards:
// it is Waiting, Following or Asking.
func (q *Queue) Join(w *Waiter) {
	w.prev = q.tail
	if q.tail != nil {
		q.tail.next = w
	} else {
		q.head = w
	}
	q.tail = w
	w.State = Waiting
	if q.waiting == nil {
		q.waiting = w
	}
	q.advance(w)
}

// Take takes w out of the queue for what it is from now on: Granted, Restarting (its
// owner holds the lock or has lost it, and its call begins again) or Idle (its call ends).
// The next waiters come to the front. They may follow the place of w, so whether that
// is unwanted is known only afterwards. A place in another phase gets no action: the
// call that asks for it settles it, or it has ended.
func (q *Queue) Take(w *Waiter, to State) []Action {
	q.actions = q.actions[:0]
	p := w.Place
	q.remove(w, to)
	q.advance(nil)
	if p != nil && p.Phase == Background && p.relying == 0 {
		q.actions = append(q.actions, Action{Unwanted: p})
	}
	return q.actions
}

// Servable returns the writer at the front if a grant of that kind can be given to
// it now, or nil. A writer whose goroutine is sending a request is not servable.
func (q *Queue) Servable(kind *Kind) *Waiter {
	w := q.head
	if w == nil || w.Mode != store.Exclusive || *w.Kind != *kind || kind.Alone ||
		w.State == Asking && w.Place.Phase == Inline {
		return nil
	}
	return w
}

// FirstOn returns the first waiter at the front that relies on p, or nil.
func (q *Queue) FirstOn(p *Place) *Waiter {
	for w, n := q.head, q.front; n > 0; w, n = w.next, n-1 {
		if w.Place == p {
			return w
		}
	}
	return nil
}

// Front returns the place that asks for the first waiter, or nil if there is none.
func (q *Queue) Front() *Place {
	if q.head == nil {
		return nil
	}
	return q.head.Place
}

// Detach has the place of w, which is Asking, go on in the background: w follows it as
// any other waiter does.
func (q *Queue) Detach(w *Waiter) {
	w.State = Following
	w.Place.Phase = Background
}

// End removes p, whose request is over. The waiters that still rely on it are
// given another place: the first of them has to ask.
func (q *Queue) End(p *Place) []Action {
	q.actions = q.actions[:0]
	q.Forget(p)
	q.reassign(p)
	return q.actions
}

// Fail removes p, whose request ended with an error. Each waiter that relies on p
// fails if concerns says so, and with behind set each waiter behind the front too.
// The others go on, as after End. Each action wakes a waiter, which has failed or has to ask.
func (q *Queue) Fail(p *Place, behind bool, concerns func(*Waiter) bool) []Action {
	q.actions = q.actions[:0]
	q.Forget(p)
	for w := q.head; w != nil; {
		next := w.next
		if (w.Place == p || behind && w.State == Waiting) && concerns(w) {
			q.remove(w, Failed)
			q.actions = append(q.actions, Action{Wake: w})
		}
		w = next
	}
	q.reassign(p)
	q.advance(nil)
	return q.actions
}

// remove unlinks w and takes it from its place.
func (q *Queue) remove(w *Waiter, to State) {
	if w.State == Following || w.State == Asking {
		q.front--
	}
	if q.waiting == w {
		q.waiting = w.next
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.prev, w.next = nil, nil
	p, asked := w.Place, w.State == Asking
	w.State, w.Place = to, nil
	if p == nil {
		return
	}
	p.relying--
	// A place that only the call of w could send ends with it.
	if asked && p.Phase != Gone {
		q.Forget(p) // first, or the others on it would be given p again
		q.reassign(p)
	}
}

// Forget ends p for the queue. If its request was granted, the caller then serves the
// waiters that rely on p, as many as the grant allows, and calls End.
func (q *Queue) Forget(p *Place) {
	p.Phase = Gone
	if q.keepers[p.Mode] == p {
		q.keepers[p.Mode] = nil
	}
}

// reassign gives another place to the waiters that relied on p.
func (q *Queue) reassign(p *Place) {
	for w := q.head; p.relying > 0; w = w.next {
		if w.Place == p {
			p.relying--
			q.assign(w)
			if w.State == Asking {
				q.actions = append(q.actions, Action{Wake: w})
			}
		}
	}
}

// advance admits waiters to the front as far as the rule of the front goes. The
// waiter that is just joining is not woken: its call looks at the state itself.
func (q *Queue) advance(joining *Waiter) {
	for w := q.waiting; w != nil; w = q.waiting {
		if q.front > 0 && (q.mode != store.Shared || w.Mode != store.Shared) {
			return
		}
		q.front++
		q.mode = w.Mode
		q.waiting = w.next
		q.assign(w)
		if w.State == Asking && w != joining {
			q.actions = append(q.actions, Action{Wake: w})
		}
	}
}

// assign gives w, at the front, a place: one that fits, or one of its own, for
// which its call has to ask.
func (q *Queue) assign(w *Waiter) {
	if p := q.keepers[w.Mode]; p != nil && p.fits(w) {
		w.State, w.Place = Following, p
		p.relying++
		return
	}
	p := &w.first
	if p.Phase != Unsent {
		p = new(Place) // a request was sent for the first, which its caller still refers to
	}
	*p = Place{Mode: w.Mode, Kind: w.Kind, relying: 1}
	w.State, w.Place = Asking, p
	if !w.Kind.Alone && q.keepers[w.Mode] == nil {
		q.keepers[w.Mode] = p
	}
}
