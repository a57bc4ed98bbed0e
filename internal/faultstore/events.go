package faultstore

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// EventFault changes one event on its way from the store to the sinks. A test may write its own.
type EventFault func(e store.Event, deliver func(store.Event))

// eventRule applies a fault to the events that match.
type eventRule struct {
	match func(n int, e store.Event) bool
	fault EventFault
}

// OnEvent applies the fault to the events that match, until off is called. n is the number of the
// event, counted from 1. Of several rules that match, the latest one counts.
func (s *Store) OnEvent(match func(n int, e store.Event) bool, fault EventFault) (off func()) {
	f := &eventRule{match, fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventRules = append(s.eventRules, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.eventRules = without(s.eventRules, f)
	}
}

// EveryEvent matches all events.
func EveryEvent(int, store.Event) bool { return true }

// NthEvent matches the n-th event.
func NthEvent(n int) func(int, store.Event) bool {
	return func(i int, _ store.Event) bool { return i == n }
}

// DropEvent loses the event.
func DropEvent() EventFault { return func(store.Event, func(store.Event)) {} }

// DelayEvent delivers the event after d.
func DelayEvent(d time.Duration) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		time.AfterFunc(d, func() { deliver(e) })
	}
}

// HoldEvent delivers the event when release is closed.
func HoldEvent(release <-chan struct{}) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		go func() {
			<-release
			deliver(e)
		}()
	}
}

// DuplicateEvent delivers the event n times.
func DuplicateEvent(n int) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		for range n {
			deliver(e)
		}
	}
}

// Emit delivers an event that the store did not send to all sinks, past all faults. It is a forged
// event, or a reconnection for store.Event{}.
func (s *Store) Emit(e store.Event) {
	s.mu.Lock()
	var sinks []func(store.Event)
	for _, sink := range s.sinks {
		sinks = append(sinks, sink)
	}
	s.mu.Unlock()
	for _, sink := range sinks {
		sink(e)
	}
}

// received handles an event of the store behind.
func (s *Store) received(from store.Store, e store.Event) {
	s.mu.Lock()
	if s.inner != from {
		s.mu.Unlock()
		return
	}
	s.events++
	deliver := s.Emit
	for i := len(s.eventRules) - 1; i >= 0; i-- {
		if f := s.eventRules[i]; f.match(s.events, e) {
			deliver = func(e store.Event) { f.fault(e, s.Emit) }
			break
		}
	}
	s.mu.Unlock()
	deliver(e)
}

// Listen implements [store.Store].
func (s *Store) Listen(sink func(store.Event)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	id := s.lastID
	s.sinks[id] = sink
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sinks, id)
	}
}

func without[T comparable](list []T, x T) []T {
	var rest []T
	for _, other := range list {
		if other != x {
			rest = append(rest, other)
		}
	}
	return rest
}
