package faultstore

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// EventFault is what happens to an event on its way from the store to the
// sinks. A test may write its own.
type EventFault func(e store.Event, deliver func(store.Event))

// fate is the rule of events.
type fate struct {
	match func(n int, e store.Event) bool
	fault EventFault
}

// OnEvent has the events that match meet the fault, until off is called. n
// counts the events of the store behind, from 1. The latest rule that matches counts.
func (s *Store) OnEvent(match func(n int, e store.Event) bool, fault EventFault) (off func()) {
	f := &fate{match, fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates = append(s.fates, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fates = without(s.fates, f)
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

// DelayEvent brings the event d later.
func DelayEvent(d time.Duration) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		time.AfterFunc(d, func() { deliver(e) })
	}
}

// HoldEvent brings the event when release is closed.
func HoldEvent(release <-chan struct{}) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		go func() {
			<-release
			deliver(e)
		}()
	}
}

// DuplicateEvent brings the event n times.
func DuplicateEvent(n int) EventFault {
	return func(e store.Event, deliver func(store.Event)) {
		for range n {
			deliver(e)
		}
	}
}

// Emit gives all sinks an event that the store did not send, past all faults: a
// forged one, or for store.Event{} a reconnection.
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

// received takes an event of the store behind.
func (s *Store) received(from store.Store, e store.Event) {
	s.mu.Lock()
	if s.inner != from {
		s.mu.Unlock()
		return
	}
	s.events++
	deliver := s.Emit
	for i := len(s.fates) - 1; i >= 0; i-- {
		if f := s.fates[i]; f.match(s.events, e) {
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
