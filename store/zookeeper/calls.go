package zookeeper

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// side is how many names one call works on at the same time.
const side = 32

// Acquire implements [store.Store]. A free name takes one transaction. Any other
// name takes a read and a transaction, and the first refusal a transaction
// that fails and a read; later ones take a sync and a read.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	var g store.Grant
	until := time.Now().Add(req.WaitTTL)
	last, err := s.update(ctx, operation{name: req.Name, acquires: true, do: func(st *step) (err error) {
		longer := req
		longer.TTL += st.slack
		longer.WaitTTL += st.slack
		g, err = st.record.Acquire(&st.call, longer, s.id)
		return err
	}})
	if last == nil {
		return store.Grant{}, err
	}
	g.Token = last.final(g.Token)
	switch {
	case g.Held:
		g.TTL = max(g.TTL-last.slack, time.Nanosecond)
		s.ended(req.ID)
	case err == nil:
		s.waits(req.Name, last.room(), req.ID, until)
	}
	return g, err
}

// Release implements [store.Store]: one transaction if nothing else has happened
// to the name.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	s.ended(ref.ID)
	_, err := s.update(ctx, operation{name: ref.Name, do: func(st *step) error {
		longer := ref
		longer.TTL += st.slack
		return st.record.Release(&st.call, longer)
	}})
	return err
}

// Break implements [store.Breaker].
func (s *Store) Break(ctx context.Context, name string) (int, error) {
	var broken int
	last, err := s.update(ctx, operation{name: name, do: func(st *step) error {
		broken = st.record.Break(&st.call)
		return nil
	}})
	if last == nil {
		return 0, err
	}
	return broken, nil
}

// Inspect implements [store.Store].
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	var state store.State
	last, err := s.update(ctx, operation{name: name, do: func(st *step) error {
		state = st.record.Inspect(&st.call, name)
		return nil
	}})
	if last == nil {
		return store.State{}, err
	}
	state.Token = last.final(state.Token)
	for i := range state.Holders {
		state.Holders[i].Token = last.final(state.Holders[i].Token)
	}
	return state, nil
}

// Renew implements [store.Store]: a transaction for each name, many at a time.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	holds = slices.Clone(holds)  // what runs on after the end of ctx reads it
	of := make(map[string][]int) // which holds a name has
	for i, ref := range holds {
		of[ref.Name] = append(of[ref.Name], i)
	}
	results := make([]error, len(holds))
	each(slices.Collect(maps.Keys(of)), func(name string) {
		answers := make([]error, len(of[name]))
		last, err := s.update(ctx, operation{name: name, do: func(st *step) error {
			for k, i := range of[name] {
				longer := holds[i]
				longer.TTL += st.slack
				answers[k] = st.record.Renew(&st.call, longer)
			}
			return nil
		}})
		for k, i := range of[name] {
			if results[i] = err; last != nil {
				results[i] = answers[k]
			}
		}
	})
	return results
}

// each calls f with each name, several at a time.
func each(names []string, f func(name string)) {
	var running sync.WaitGroup
	places := make(chan struct{}, side)
	for _, name := range names {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			f(name)
		})
	}
	running.Wait()
}
