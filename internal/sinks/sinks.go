// Package sinks passes a store's events on to those who listen.
package sinks

import (
	"context"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/store"
)

// List is the sinks of one handle of a store. Its zero value is empty and ready to use. All
// methods are safe for concurrent use.
type List struct {
	mu     sync.Mutex
	closed bool
	all    []*func(store.Event) // replaced, never changed in place, so that Tell can use it unlocked
}

// Listen implements [store.Store].
func (l *List) Listen(sink func(store.Event)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.all = append(slices.Clone(l.all), &sink)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		is := func(other *func(store.Event)) bool { return other == &sink }
		l.all = slices.DeleteFunc(slices.Clone(l.all), is)
	}
}

// Tell calls the sinks on this goroutine, one after the other. A sink that blocks holds the
// caller up.
func (l *List) Tell(e store.Event) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, sink := range all {
		(*sink)(e)
	}
}

// Any reports whether there is a sink.
func (l *List) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) > 0
}

// Close drops all sinks, now and for the future.
func (l *List) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.all = true, nil
}

// inbox is how many events may be on their way. A flood beyond that costs one
// Event{}, not memory and not a stalled connection.
const inbox = 1024

// Sinks is a List that stands between the connection that events arrive on, which must not
// be held up, and sinks, of which one may be slow.
type Sinks struct {
	List
	events chan store.Event
	reset  chan struct{} // holds one Event{}, for many that would say the same
}

// New returns Sinks without any.
func New() *Sinks {
	return &Sinks{events: make(chan store.Event, inbox), reset: make(chan struct{}, 1)}
}

// Push hands an event over to Deliver. It never blocks. One that does not fit
// becomes an Event{}.
func (s *Sinks) Push(e store.Event) {
	if e != (store.Event{}) {
		select {
		case s.events <- e:
			return
		default:
		}
	}
	select {
	case s.reset <- struct{}{}:
	default: // there is one that nobody has heard yet
	}
}

// Deliver calls the sinks, one after the other, until ctx ends.
func (s *Sinks) Deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.events:
			s.Tell(e)
		case <-s.reset:
			s.Tell(store.Event{})
		}
	}
}
