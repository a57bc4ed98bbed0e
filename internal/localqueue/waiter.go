package localqueue

import "github.com/dlock-go/dlock/store"

// State is where a waiter stands.
type State uint8

// The states of a waiter. Granted, Failed and Restarting are final for the queue: the
// waiter has left it.
const (
	Idle       State = iota // not in the queue yet, or its call has left
	Waiting                 // in the queue, behind the front
	Following               // at the front; a place of another call, or one in the background, asks for it
	Asking                  // at the front; its own call has to ask the store, or is asking
	Granted                 // a grant was given to it
	Failed                  // it ends with an error
	Restarting              // its owner holds the lock by another call, or has lost it: its call begins again
)

// Kind says which waiters a grant fits: those with an equal Kind. Two holds with
// equal leases and labels can stand for each other, unless Alone is set. A Kind does
// not change.
type Kind struct {
	TTL, WaitTTL int64
	Label        string
	Alone        bool // the grant of this waiter's own request is the only one that fits
}

// Waiter is one call in the queue. Its zero value is idle. Value is the caller's.
type Waiter struct {
	Mode  store.Mode
	State State
	Kind  *Kind
	Place *Place // that asks for it; nil unless it is at the front
	Value any

	prev, next *Waiter
	first      Place // spares an allocation: the first place of its own
}

// InQueue reports whether the waiter is in the queue.
func (w *Waiter) InQueue() bool { return w.Place != nil || w.State == Waiting }

// Phase is what has become of a place's request.
type Phase uint8

// The phases of a place.
const (
	Unsent     Phase = iota // no request was sent; its asker is about to
	Inline                  // the asker's goroutine is sending the first request
	Background              // the place keeper asks; nobody's goroutine is bound to it
	Gone                    // the request is granted, given up or failed
)

// Place is a request for the front of the queue. Value is the caller's.
type Place struct {
	Mode  store.Mode
	Kind  *Kind
	Phase Phase
	Value any

	relying int // waiters at the front whose Place it is; before the background one of them is Asking
}

// Wanted reports whether a waiter at the front relies on the place.
func (p *Place) Wanted() bool { return p.relying > 0 }

// fits reports whether a grant to p can be given to w.
func (p *Place) fits(w *Waiter) bool {
	return p.Mode == w.Mode && *p.Kind == *w.Kind && !w.Kind.Alone
}
