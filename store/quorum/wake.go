package quorum

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

type sink struct{ call func(store.Event) }

// Listen implements [store.Store]. Its events never grant: one with an id says
// that a majority of the nodes has granted the request, or that some have and the
// others do not follow, and the request has to be asked again. The token does not
// exist before the nodes have agreed on it. Sinks run on goroutines of the nodes.
func (s *Store) Listen(call func(store.Event)) (stop func()) {
	k := &sink{call}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.sinks = append(s.sinks[:len(s.sinks):len(s.sinks)], k)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		var rest []*sink
		for _, other := range s.sinks {
			if other != k {
				rest = append(rest, other)
			}
		}
		s.sinks = rest
	}
}

func (s *Store) emit(e store.Event) {
	s.mu.Lock()
	sinks := s.sinks
	s.mu.Unlock()
	for _, k := range sinks {
		k.call(e)
	}
}

// promise is the events of one id since it was last asked for: it is to be woken
// when a majority of the nodes has granted it, or a little later if only some have.
type promise struct {
	mu    sync.Mutex
	nodes map[int]bool
	timer *time.Timer
}

// keep forgets the events, for the request is being asked again or is over.
func (p *promise) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.nodes, p.timer = nil, nil
}

// add notes an event, and has wake called after d unless that many nodes have
// sent one before; it reports whether they have.
func (p *promise) add(i, need int, d time.Duration, wake func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		p.nodes = make(map[int]bool)
		p.timer = time.AfterFunc(d, wake)
	}
	p.nodes[i] = true
	if len(p.nodes) != need {
		return false
	}
	p.timer.Stop()
	return true
}

// heard takes an event of a node. The grants of a majority follow each other
// closely. If they do not, others were first in line at other nodes; then the
// one who asks soonest gives way, so the moment is random.
func (s *Store) heard(n *node, event store.Event) {
	if event.ID == "" {
		s.emit(event)
		return
	}
	e := s.entries.waiter(event.ID)
	if e == nil {
		return
	}
	defer s.entries.put(e)
	wake := func() { s.emit(store.Event{ID: e.key.of}) }
	if e.promise.add(n.index, s.need, s.moment()+rand.N(2*s.moment()), wake) {
		wake()
	}
}

// moment is the time in which the nodes would have followed each other.
func (s *Store) moment() time.Duration {
	return max(2*time.Millisecond, min(time.Duration(s.pulse.Load()), 100*time.Millisecond))
}
