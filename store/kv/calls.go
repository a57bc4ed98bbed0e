package kv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// on makes one change and returns the error of the step, or that of a foreign
// value.
func (s *Store) on(ctx context.Context, name string, do func(r *model.Record, c *model.Call)) error {
	c := &change{name: name, do: do}
	if err := s.update(ctx, c); err != nil {
		return err
	}
	return c.foreign
}

// Acquire implements [store.Store]: one Update.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	var answer struct {
		store.Grant
		err error
	}
	if s.Polls() && req.Queue {
		// Before the step: an event of it must find the waiter.
		s.watch(req)
	}
	err := s.on(ctx, req.Name, func(r *model.Record, c *model.Call) {
		answer.Grant, answer.err = r.Acquire(c, req, s.id)
	})
	if err != nil {
		if errors.Is(err, store.ErrRefused) || errors.Is(err, store.ErrForeignKey) {
			s.unwatch(req.ID) // nothing was written; a place of before is looked at when it is asked for again
		}
		return store.Grant{}, err
	}
	if answer.Held || answer.err != nil && req.Queue {
		s.unwatch(req.ID)
	}
	return answer.Grant, answer.err
}

// Release implements [store.Store]: one Update.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	s.unwatch(ref.ID)
	var answer error
	err := s.on(ctx, ref.Name, func(r *model.Record, c *model.Call) { answer = r.Release(c, ref) })
	if err != nil {
		return err
	}
	return answer
}

// Break implements [store.Breaker]: one Update.
func (s *Store) Break(ctx context.Context, name string) (int, error) {
	var broken int
	err := s.on(ctx, name, func(r *model.Record, c *model.Call) { broken = r.Break(c) })
	if err != nil {
		return 0, err
	}
	return broken, nil
}

// Inspect implements [store.Store]: one Update.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	var state store.State
	err := s.on(ctx, name, func(r *model.Record, c *model.Call) { state = r.Inspect(c, name) })
	if err != nil {
		return store.State{}, err
	}
	return state, nil
}

// batch are the renewals of the holds of one name.
type batch struct {
	change
	refs    []store.Ref
	places  []int // of the refs in Renew's argument
	answers []error
}

// Renew implements [store.Store]: one Update for each Options.Batch names. If
// such an Update fails, or takes half of the time that ctx leaves, each of its
// names is tried alone, since one name that is blocked must not cost the other
// holds their leases.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	var alone sync.WaitGroup
	for group := range slices.Chunk(byName(holds), s.opts.Batch) {
		if len(group) == 1 {
			s.renew(ctx, results, group)
			continue
		}
		together, cancel := halfOf(ctx)
		err := s.renew(together, results, group)
		cancel()
		if err == nil {
			continue
		}
		for _, b := range group {
			alone.Go(func() { s.renew(ctx, results, []*batch{b.again()}) })
		}
	}
	alone.Wait()
	return results
}

// halfOf returns a context that lasts half as long as ctx.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// renew makes one Update and writes the results of its holds.
func (s *Store) renew(ctx context.Context, results []error, group []*batch) error {
	changes := make([]*change, len(group))
	for i, b := range group {
		changes[i] = &b.change
	}
	err := s.update(ctx, changes...)
	for _, b := range group {
		for i, place := range b.places {
			switch {
			case err != nil:
				results[place] = err
			case b.foreign != nil:
				results[place] = b.foreign
			default:
				results[place] = b.answers[i]
			}
		}
	}
	return err
}

// byName groups holds by name, the names in order.
func byName(holds []store.Ref) []*batch {
	var list []*batch
	of := make(map[string]*batch, len(holds))
	for i, ref := range holds {
		b := of[ref.Name]
		if b == nil {
			b = newBatch(ref.Name)
			of[ref.Name] = b
			list = append(list, b)
		}
		b.refs, b.places = append(b.refs, ref), append(b.places, i)
	}
	slices.SortFunc(list, func(a, b *batch) int { return strings.Compare(a.name, b.name) })
	return list
}

func newBatch(name string) *batch {
	b := &batch{change: change{name: name}}
	b.do = func(r *model.Record, c *model.Call) {
		b.answers = b.answers[:0]
		for _, ref := range b.refs {
			b.answers = append(b.answers, r.Renew(c, ref))
		}
	}
	return b
}

// again is the same batch for another try. The first try may still be under way
// and write into the first batch.
func (b *batch) again() *batch {
	fresh := newBatch(b.name)
	fresh.refs, fresh.places = b.refs, b.places
	return fresh
}

// List implements [store.Lister]: the backend's Names, and one Update for each
// Options.Batch of them, since a value may have expired.
func (s *Store) List(ctx context.Context) ([]string, error) {
	var names []string
	err := s.call(ctx, func(ctx context.Context) (err error) {
		names, err = s.backend.Names(ctx)
		return unknown(err)
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var used []string
	for group := range slices.Chunk(slices.Compact(names), s.opts.Batch) {
		changes, inUse := make([]*change, len(group)), make([]bool, len(group))
		for i, name := range group {
			changes[i] = &change{name: name, do: func(r *model.Record, c *model.Call) {
				r.Settle(c)
				inUse[i] = r.InUse(c.Now)
			}}
		}
		if err := s.update(ctx, changes...); err != nil {
			return nil, err
		}
		for i, name := range group {
			if inUse[i] {
				used = append(used, name)
			}
		}
	}
	return used, nil
}
