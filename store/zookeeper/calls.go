package zookeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// side is how many names one call works on at the same time.
const side = 32

// Acquire implements [store.Store]. A free name takes one transaction. Any other
// name takes a read and a transaction, and a refusal a transaction that fails and
// a read.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	var g store.Grant
	var last *step
	err := s.update(ctx, operation{name: req.Name, isFree: true, adds: true, do: func(st *step) (err error) {
		longer := req
		longer.TTL += st.slack
		longer.WaitTTL += st.slack
		last = st
		if g, err = st.record.Acquire(&st.call, longer, s.id); err == nil && !g.Held {
			s.waits(st, req.ID, longer.WaitTTL)
			return nil
		}
		if g.Held {
			g.TTL = max(g.TTL-st.slack, time.Nanosecond)
		}
		s.waitsNot(st, req.ID)
		return err
	}})
	if err != nil && !errors.Is(err, store.ErrHeld) && !errors.Is(err, store.ErrUpgrade) {
		return store.Grant{}, err // the operation may be going on, and write g
	}
	g.Token = last.final(g.Token)
	return g, err
}

// Release implements [store.Store]: one transaction if nothing else has happened
// to the name.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	return s.update(ctx, operation{name: ref.Name, do: func(st *step) error {
		longer := ref
		longer.TTL += st.slack
		err := st.record.Release(&st.call, longer)
		s.waitsNot(st, ref.ID)
		return err
	}})
}

// Break implements [store.Breaker].
func (s *Store) Break(ctx context.Context, name string) (int, error) {
	var broken int
	err := s.update(ctx, operation{name: name, do: func(st *step) error {
		broken = st.record.Break(&st.call)
		return nil
	}})
	if err != nil {
		return 0, err
	}
	return broken, nil
}

// Inspect implements [store.Store].
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	var state store.State
	var last *step
	err := s.update(ctx, operation{name: name, do: func(st *step) error {
		state, last = st.record.Inspect(&st.call, name), st
		return nil
	}})
	if err != nil {
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
	var names []string
	of := make(map[string][]int) // which holds a name has
	for i, ref := range holds {
		if of[ref.Name] == nil {
			names = append(names, ref.Name)
		}
		of[ref.Name] = append(of[ref.Name], i)
	}
	answers := make([][]error, len(names))
	errs := each(len(names), func(n int) error { return s.renew(ctx, holds, names[n], of[names[n]], &answers[n]) })
	results := make([]error, len(holds))
	for n, name := range names {
		for k, i := range of[name] {
			if results[i] = errs[n]; errs[n] == nil {
				results[i] = answers[n][k]
			}
		}
	}
	return results
}

// renew renews the holds of one name.
func (s *Store) renew(ctx context.Context, holds []store.Ref, name string, which []int, answers *[]error) error {
	return s.update(ctx, operation{name: name, do: func(st *step) error {
		list := make([]error, 0, len(which))
		for _, i := range which {
			longer := holds[i]
			longer.TTL += st.slack
			list = append(list, st.record.Renew(&st.call, longer))
		}
		*answers = list
		return nil
	}})
}

// each calls f with 0 to n-1, several at a time, and returns the errors.
func each(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var running sync.WaitGroup
	places := make(chan struct{}, side)
	for i := range n {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			errs[i] = f(i)
		})
	}
	running.Wait()
	return errs
}
