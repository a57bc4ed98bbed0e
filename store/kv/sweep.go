package kv

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store/model"
)

// sweeping decides when expired records are removed that no call touches any
// more: those of clients that died.
type sweeping struct {
	created int // records created through this handle since the last sweep, or since a random start
	kept    int // records that the last sweep left
	running bool
}

// minCreated is after how many new records a handle sweeps at the earliest, but for
// its first sweep.
const minCreated = 64

// sweepTime bounds the calls that find what has expired. After an answer that was lost the
// next sweep could not begin otherwise.
const sweepTime = 2 * time.Minute

// added counts new records and sweeps when there may be as many expired ones as
// there were records. So sweeping costs a constant for each new record, and
// expired records are bounded by a multiple of those in use.
func (s *Store) added(created int) {
	if created == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.created += created
	if s.closed || s.sweep.running || s.sweep.created < max(minCreated, s.sweep.kept) {
		return
	}
	s.sweep.created, s.sweep.running = 0, true
	go s.sweepAll()
}

// sweepAll removes the expired records.
func (s *Store) sweepAll() {
	ctx, cancel := context.WithTimeout(s.ctx, sweepTime)
	defer cancel()
	kept := 0
	if sweeper, ok := s.backend.(Sweeper); ok {
		sweeper.Sweep(ctx)
	}
	var names []string
	err := ctx.Err() // of a backend that is closed nothing is asked
	if err == nil {
		names, err = s.backend.Names(ctx)
	}
	if _, ok := s.backend.(Sweeper); !ok && err == nil {
		slices.Sort(names)
		for group := range slices.Chunk(slices.Compact(names), s.opts.Batch) {
			kept += s.settle(group)
		}
	} else {
		kept = len(names)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep.kept, s.sweep.running = kept, false
}

// settle removes those of the names that have expired, and grants what can be granted,
// together or, if that fails, each alone. It returns how many are left.
func (s *Store) settle(names []string) (kept int) {
	changes := make([]*change, len(names))
	left := make([]bool, len(names))
	for i, name := range names {
		changes[i] = &change{name: name, do: func(r *model.Record, c *model.Call) {
			r.Settle(c)
			left[i] = !r.Empty()
		}}
	}
	ctx, cancel := context.WithTimeout(s.ctx, lookTime)
	defer cancel()
	switch err := s.update(ctx, changes...); {
	case s.ctx.Err() != nil:
	case err != nil && len(names) == 1:
		kept = 1
	case err != nil:
		for i := range names {
			kept += s.settle(names[i : i+1])
		}
	default:
		for _, l := range left {
			if l {
				kept++
			}
		}
	}
	return kept
}

// Created tells the Store of records that its backend made by itself, so that
// they are swept in time when their clients die.
func (s *Store) Created(n int) { s.added(n) }

// Handle is the name of this handle in records and messages.
func (s *Store) Handle() string { return s.id }
