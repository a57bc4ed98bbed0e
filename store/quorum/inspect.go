package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// View is what one node knows of a name.
type View struct {
	Node     int // its number in the order of New, from 0
	State    store.State
	Err      error         // it did not say
	Excluded time.Duration // for so long it does not vote yet for the longest lease that the handle was asked for; 0 before its first vote
}

// Views reports what each node knows of a name, in the order of New, for people and tests. A holder that a minority
// has is one that is just being granted or refused, or whose release has not got through everywhere. It blocks for the
// timeout of a node at most.
func (s *Store) Views(ctx context.Context, name string) ([]View, error) {
	states, errs, err := everywhere(ctx, s, s.timeout(time.Hour), inspecting(name))
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	var views []View
	for i, n := range s.nodes {
		excluded := n.life.left(time.Now(), time.Duration(s.longest.Load()))
		views = append(views, View{Node: i, State: states[i], Err: errs[i], Excluded: excluded})
	}
	return views, nil
}

// Inspect implements [store.Store]: the holders and waiters that a majority of the nodes has, as the first of these
// nodes has them in order. [Store.Views] shows the others too.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	states, err := operate(ctx, s, s.timeout(time.Hour), inspecting(name))
	if err != nil {
		return store.State{}, err
	}
	var holders, queues [][]store.Entry
	state := store.State{Name: name}
	for _, at := range states {
		state.Token = max(state.Token, at.Token)
		holders, queues = append(holders, at.Holders), append(queues, at.Queue)
	}
	state.Holders, state.Queue = s.merge(holders), s.merge(queues)
	return state, nil
}

func inspecting(name string) call[store.State] {
	return func(ctx context.Context, n *node) (store.State, error) { return n.store.Inspect(ctx, name) }
}

// merge returns the entries that a majority of the lists has.
func (s *Store) merge(lists [][]store.Entry) (merged []store.Entry) {
	type key struct {
		id, owner string
		mode      store.Mode
	}
	var order []key // that of the first list, then what it lacks
	found := make(map[key][]store.Entry)
	for _, list := range lists {
		seen := make(map[key]bool) // a node may have two tries of an id
		for _, e := range list {
			k := key{e.ID, e.Owner, e.Mode}
			if found[k] == nil {
				order = append(order, k)
			}
			if !seen[k] {
				seen[k], found[k] = true, append(found[k], e)
			}
		}
	}
	for _, k := range order {
		same := found[k]
		if len(same) < s.need {
			continue
		}
		e := same[0]
		tokens := each(same, func(e store.Entry) uint64 { return e.Token })
		var ok bool
		if e.Token, ok = common(tokens, s.need); !ok {
			e.Token = slices.Max(tokens)
		}
		e.Remaining = nth(each(same, func(e store.Entry) time.Duration { return e.Remaining }), s.need)
		e.Age = nth(each(same, func(e store.Entry) time.Duration { return e.Age }), s.need)
		merged = append(merged, e)
	}
	return merged
}

const (
	forOperators = 5 * time.Second        // how long the nodes have for Break and List
	forTheRest   = 100 * time.Millisecond // and the minority at least, when a majority has answered
)

// Break implements [store.Breaker]: it breaks the name at all nodes, each of which has to be one too, and returns how
// many holds a majority had. It blocks until all have answered, for 5 s at most, or ctx ends. When a majority has
// answered, the others have as long again and 100 ms; what was sent to them goes on. With fewer answers than
// a majority the error is [ErrNoQuorum], and [store.ErrUnsupported] if a majority is none.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	all, err := operate(ctx, s, forOperators, func(ctx context.Context, n *node) (int, error) {
		if breaker, ok := n.store.(store.Breaker); ok {
			return breaker.Break(ctx, name)
		}
		return 0, store.ErrUnsupported
	})
	if err != nil {
		return 0, err
	}
	return nth(all, s.need), nil
}

// List implements [store.Lister]: the names that a majority of the nodes lists, each of which has to be one too. It
// blocks and fails as Break does.
func (s *Store) List(ctx context.Context) (names []string, err error) {
	all, err := operate(ctx, s, forOperators, func(ctx context.Context, n *node) ([]string, error) {
		if lister, ok := n.store.(store.Lister); ok {
			return lister.List(ctx)
		}
		return nil, store.ErrUnsupported
	})
	count := make(map[string]int)
	for _, name := range slices.Concat(all...) {
		if count[name]++; count[name] == s.need {
			names = append(names, name)
		}
	}
	return names, err
}

// operate is everywhere for what a majority has to say. It returns the values of the nodes without error.
func operate[T any](ctx context.Context, s *Store, timeout time.Duration, f call[T]) (said []T, err error) {
	began := time.Now()
	patient, leave := context.WithCancel(ctx)
	defer leave()
	var answered atomic.Int64
	values, errs, err := everywhere(patient, s, timeout, func(ctx context.Context, n *node) (T, error) {
		value, err := f(ctx, n)
		if err == nil && answered.Add(1) == int64(s.need) {
			time.AfterFunc(time.Since(began)+forTheRest, leave)
		}
		return value, err
	})
	if err != nil {
		return nil, err
	}
	for i, value := range values {
		if errs[i] == nil {
			said = append(said, value)
		}
	}
	if len(said) < s.need {
		return nil, cmp.Or(ctx.Err(), s.verdict(errs))
	}
	return said, nil
}

// everywhere calls f for all nodes and returns what each of them said until ctx ended.
func everywhere[T any](ctx context.Context, s *Store, timeout time.Duration, f call[T]) ([]T, []error, error) {
	if err := s.work.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer s.work.end()
	values, errs := make([]T, len(s.nodes)), s.silence()
	ask(ctx, s, timeout, s.nodes, f, func(a answer[T], _ int) bool {
		values[a.node.index], errs[a.node.index] = a.value, a.err
		return false
	})
	return values, errs, nil
}
