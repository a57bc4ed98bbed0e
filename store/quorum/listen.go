package quorum

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Listen implements [store.Store]. Its events never grant: one with an id says that a majority of the nodes has
// granted the request, or that some have and the others do not follow, and the request has to be asked again. The
// token does not exist before the nodes have agreed on it. Sinks run on goroutines of the nodes.
func (s *Store) Listen(call func(store.Event)) (stop func()) { return s.sinks.Listen(call) }

// forgetEvents is for a request that is being asked again, or is over. The caller has the mutex.
func (e *entry) forgetEvents() {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.events, e.timer = nil, nil
}

// heard takes an event of a node. A request is to be asked again when a majority of the nodes has granted it: their
// grants follow each other closely. If they do not, other requests were first in line at other nodes. Then the one
// that asks soonest gives way, so the moment is random. A node that grants a place after a majority has granted may
// have given a lower token than that.
func (s *Store) heard(n *node, event store.Event) {
	if event.ID == "" {
		s.sinks.Tell(event)
		return
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	e := s.table.tries[event.ID]
	switch {
	case e == nil:
	case e.phase == granted:
		s.restore(context.Background(), n, e)
	case e.phase == asking:
		if e.events == nil {
			e.events = make(map[int]bool)
			e.timer = time.AfterFunc(s.moment()+rand.N(2*s.moment()), func() { s.sinks.Tell(store.Event{ID: e.id}) })
		}
		if e.events[n.index] = true; len(e.events) == s.need {
			e.timer.Reset(0)
		}
	}
}

// moment is the time in which the nodes would have followed each other.
func (s *Store) moment() time.Duration {
	return max(2*time.Millisecond, min(time.Duration(s.pulse.Load()), 100*time.Millisecond))
}
