package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

const (
	// maxPlaces is how many places of waiters a handle remembers.
	maxPlaces = 1000
	// maxValue is how long a record may be that is remembered with a place.
	maxValue = 4096
	// maxDoubt is how exactly the server's clock has to be known for a decision on a
	// record that an earlier call has read.
	maxDoubt = 100 * time.Millisecond
)

// place is what a handle remembers of a request that is queued: the record that it
// left, and the server's clock. The server read the clock between sent and got.
type place struct {
	value     []byte // nil: not known
	now       time.Time
	sent, got time.Time
}

// bounds are between which moments the server's clock stands now.
func (p *place) bounds() (earliest, latest time.Time) {
	return p.now.Add(time.Since(p.got)), p.now.Add(time.Since(p.sent))
}

// places are the requests that were queued through a handle, by id. Forgetting one
// costs statements.
type places struct {
	mu sync.Mutex
	of map[string]place
}

func (p *places) note(id string, known place) {
	if len(known.value) > maxValue || known.got.Sub(known.sent) > maxDoubt {
		known.value = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= maxPlaces {
		p.of = make(map[string]place)
	}
	p.of[id] = known
}

func (p *places) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

func (p *places) get(id string) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.of[id]
	return known, ok
}

// again makes a request that is queued once more, in one statement if nobody has
// changed the record since, in two otherwise. ok is false if a transaction has to
// decide. A handle that polls looks for its waiters in package kv.
func (s *Store) again(ctx context.Context, req store.Request) (g store.Grant, ok bool) {
	known, queued := s.places.get(req.ID)
	if !queued || s.Polls() {
		return g, false
	}
	during, end, err := s.begin(ctx)
	if err != nil {
		return g, false
	}
	defer end()
	for range 2 {
		change := swap{name: req.Name}
		if known.value != nil {
			earliest, latest := known.bounds()
			change, ok = decide(req.Name, known.value, earliest, latest, func(r *model.Record, c *model.Call) {
				g, err = r.Acquire(c, req, s.Handle())
			})
			if ok && err != nil {
				return g, false
			}
			if !ok {
				change = swap{name: req.Name}
			}
		}
		known.sent = time.Now()
		all, err := s.backend.swap(during, []swap{change})
		known.got = time.Now()
		row := all[req.Name]
		if err != nil || row.value == nil {
			return g, false
		}
		known.value, known.now = row.value, row.now
		if !row.swapped {
			continue
		}
		if g.Held {
			s.places.forget(req.ID)
			return g, true
		}
		known.value, g.Token = change.new, row.last
		s.places.note(req.ID, known)
		return g, true
	}
	return g, false
}
