package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// View is what one node knows of a name.
type View struct {
	Node     int // its number in the order of New, from 0
	State    store.State
	Err      error         // it did not say
	Excluded time.Duration // for so long it does not vote yet for the longest lease that the handle was asked for
}

// Views reports what each node knows of a name, in the order of New, for people
// and tests. A holder that a minority has is one that is just being granted or
// refused, or whose release has not got through everywhere. It blocks for the
// timeout of a node at most.
func (s *Store) Views(ctx context.Context, name string) ([]View, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	views := make([]View, len(s.nodes))
	for i, n := range s.nodes {
		views[i] = View{Node: i, Err: errSilent, Excluded: n.life.left(time.Now(), s.exclusion(time.Duration(s.longest.Load())))}
	}
	r := ask(ctx, s, s.timeout(time.Hour), s.nodes, func(ctx context.Context, n *node) (store.State, error) {
		return n.store.Inspect(ctx, name)
	})
	complete := r.collect(ctx, func(a answer[store.State]) {
		views[a.node.index].State, views[a.node.index].Err = a.value, a.err
	}, func(int) bool { return false })
	r.rest(s, func(answer[store.State]) {})
	if !complete {
		return nil, ctx.Err()
	}
	return views, nil
}

// Inspect implements [store.Store]: the holders and waiters that a majority of the
// nodes has, as the first of these nodes has them in order. [Store.Views] shows
// the others too.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	views, err := s.Views(ctx, name)
	if err != nil {
		return store.State{}, err
	}
	errs := make([]error, len(views))
	state := store.State{Name: name}
	known := 0
	var holders, queues [][]store.Entry
	for i, v := range views {
		if errs[i] = v.Err; v.Err != nil {
			continue
		}
		known++
		state.Token = max(state.Token, v.State.Token)
		holders, queues = append(holders, v.State.Holders), append(queues, v.State.Queue)
	}
	if known < s.need {
		return store.State{}, s.verdict(errs)
	}
	state.Holders, state.Queue = s.merge(holders), s.merge(queues)
	return state, nil
}

// merge returns the entries that a majority of the lists has.
func (s *Store) merge(lists [][]store.Entry) (merged []store.Entry) {
	type key struct {
		id, owner string
		mode      store.Mode
	}
	entries := make(map[key][]store.Entry)
	for _, list := range lists {
		for _, e := range list {
			k := key{e.ID, e.Owner, e.Mode}
			if entries[k] = append(entries[k], e); len(entries[k]) == s.need {
				merged = append(merged, e)
			}
		}
	}
	for i, e := range merged {
		same := entries[key{e.ID, e.Owner, e.Mode}]
		merged[i].Token, merged[i].Remaining, merged[i].Age = s.tokenOf(same), s.remaining(same), s.age(same)
	}
	// The order is that of the first list, which those entries have all that it has.
	if len(lists) > 0 {
		slices.SortStableFunc(merged, func(a, b store.Entry) int { return place(lists[0], a) - place(lists[0], b) })
	}
	return merged
}

func place(list []store.Entry, e store.Entry) int {
	i := slices.IndexFunc(list, func(x store.Entry) bool { return x.ID == e.ID && x.Owner == e.Owner })
	if i < 0 {
		return len(list)
	}
	return i
}

// tokenOf is the token that a majority has given, or the greatest of them.
func (s *Store) tokenOf(same []store.Entry) (greatest uint64) {
	count := make(map[uint64]int)
	for _, e := range same {
		if count[e.Token]++; count[e.Token] == s.need {
			return e.Token
		}
		greatest = max(greatest, e.Token)
	}
	return greatest
}

// remaining is for how long a majority has it.
func (s *Store) remaining(same []store.Entry) time.Duration {
	var all []time.Duration
	for _, e := range same {
		all = append(all, e.Remaining)
	}
	slices.Sort(all)
	return all[len(all)-s.need]
}

// age is for how long a majority has had it, or 0 if fewer nodes know that.
func (s *Store) age(same []store.Entry) time.Duration {
	var all []time.Duration
	for _, e := range same {
		all = append(all, e.Age)
	}
	slices.Sort(all)
	return all[len(all)-s.need]
}

// Break implements [store.Breaker]: it breaks the name at all nodes, each of which
// has to be one too, and returns how many holds a majority had. It blocks until all have
// answered, for 5 s at most, or ctx ends; with fewer answers than a majority the error
// is [ErrNoQuorum].
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	return during(ctx, s, func(ctx context.Context) (int, error) {
		all, err := everywhere(ctx, s, func(ctx context.Context, n *node) (int, error) {
			breaker, ok := n.store.(store.Breaker)
			if !ok {
				return 0, errUnable
			}
			return breaker.Break(ctx, name)
		})
		if err != nil {
			return 0, err
		}
		slices.Sort(all)
		return all[len(all)-s.need], nil
	})
}

// List implements [store.Lister]: the names that a majority of the nodes lists,
// each of which has to be one too. It blocks and fails as Break does.
func (s *Store) List(ctx context.Context) ([]string, error) {
	return during(ctx, s, func(ctx context.Context) (names []string, err error) {
		all, err := everywhere(ctx, s, func(ctx context.Context, n *node) ([]string, error) {
			lister, ok := n.store.(store.Lister)
			if !ok {
				return nil, errUnable
			}
			return lister.List(ctx)
		})
		if err != nil {
			return nil, err
		}
		count := make(map[string]int)
		for _, list := range all {
			for _, name := range list {
				if count[name]++; count[name] == s.need {
					names = append(names, name)
				}
			}
		}
		return names, nil
	})
}

var errUnable = errors.New("quorum: the node cannot do that")

// everywhere calls f for all nodes, for as long as an operator waits, and returns
// what they said, if a majority has said something.
func everywhere[T any](ctx context.Context, s *Store, f func(context.Context, *node) (T, error)) (values []T, err error) {
	errs := make([]error, len(s.nodes))
	for i := range errs {
		errs[i] = errSilent
	}
	r := ask(ctx, s, operator, s.nodes, f)
	r.collect(ctx, func(a answer[T]) {
		if errs[a.node.index] = a.err; a.err == nil {
			values = append(values, a.value)
		}
	}, func(int) bool { return false })
	r.rest(s, func(answer[T]) {})
	if len(values) < s.need {
		return nil, s.verdict(errs)
	}
	return values, nil
}

// operator is how long each node has for what operators ask.
const operator = 5 * time.Second
