// Package sinks passes a store's events on to those who listen. It stands
// between the connection that events arrive on, which must not be held up, and
// sinks, of which one may be slow.
package sinks

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/store"
)

// inbox is how many events may be on their way. A flood beyond that costs one
// Event{}, not memory and not a stalled connection.
const inbox = 1024

// Sinks are those of one handle of a store. All methods are safe for concurrent
// use.
type Sinks struct {
	events chan store.Event
	all    chan struct{} // holds one Event{}, for many that would say the same

	mu     sync.Mutex
	closed bool
	list   []*sink // replaced, never changed in place, so that Tell can use it unlocked
}

type sink struct{ call func(store.Event) }

// New returns an empty set.
func New() *Sinks {
	return &Sinks{events: make(chan store.Event, inbox), all: make(chan struct{}, 1)}
}

// Listen implements [store.Store].
func (s *Sinks) Listen(call func(store.Event)) (stop func()) {
	k := &sink{call}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.list = append(s.list[:len(s.list):len(s.list)], k)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		var rest []*sink
		for _, other := range s.list {
			if other != k {
				rest = append(rest, other)
			}
		}
		s.list = rest
	}
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
	case s.all <- struct{}{}:
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
		case <-s.all:
			s.Tell(store.Event{})
		}
	}
}

// Tell calls the sinks on this goroutine, one after the other. That is quicker than Push,
// but a sink that blocks holds the caller up.
func (s *Sinks) Tell(e store.Event) {
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	for _, k := range list {
		k.call(e)
	}
}

// Close drops all sinks, now and for the future.
func (s *Sinks) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.list = true, nil
}
