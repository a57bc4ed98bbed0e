package quorum

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// node is one of the stores.
type node struct {
	index   int
	store   store.Store
	raiser  store.TokenRaiser
	mortal  store.Incarnator // nil: it loses nothing
	voter   store.Voter      // nil: it is asked by steps
	deaf    func()           // ends listening
	latency atomic.Int64     // of its last answer, or how long it was waited for
	life    life
	chores  chores
}

func newNode(i int, inner store.Store) (*node, error) {
	if inner == nil {
		return nil, fmt.Errorf("quorum: node %d is nil", i)
	}
	raiser, ok := inner.(store.TokenRaiser)
	if !ok {
		return nil, fmt.Errorf("quorum: node %d, a %T, is no store.TokenRaiser", i, inner)
	}
	n := &node{index: i, store: inner, raiser: raiser}
	n.mortal, _ = inner.(store.Incarnator)
	n.voter, _ = inner.(store.Voter)
	return n, nil
}

// answer is what a node said.
type answer[T any] struct {
	node  *node
	value T
	err   error
}

// round is one call of several nodes at once.
type round[T any] struct {
	answers chan answer[T]
	waiting map[*node]bool // who has not answered
	began   time.Time
}

// ask calls f for each of the nodes, at once and each with the timeout. The calls
// are detached from ctx, whose values they get: somebody who stops waiting does
// not stop a request whose outcome nobody would know.
func ask[T any](ctx context.Context, s *Store, timeout time.Duration, nodes []*node, f func(context.Context, *node) (T, error)) *round[T] {
	r := &round[T]{answers: make(chan answer[T], len(nodes)), waiting: make(map[*node]bool, len(nodes)), began: time.Now()}
	ctx = context.WithoutCancel(ctx)
	for _, n := range nodes {
		r.waiting[n] = true
		s.work.also(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			defer context.AfterFunc(s.work.base, cancel)()
			value, err := f(ctx, n)
			n.latency.Store(int64(time.Since(r.began)))
			r.answers <- answer[T]{n, value, err}
		})
	}
	return r
}

// collect takes answers until enough says that the others cannot matter, then for
// a little longer: as long as it took so far those are waited for of whom an
// answer can be expected in that time, because what all nodes know is better than
// what a majority knows. enough is told how many are still to answer. It returns
// false if ctx ended before.
func (r *round[T]) collect(ctx context.Context, take func(answer[T]), enough func(left int) bool) bool {
	var grace <-chan time.Time
	for len(r.waiting) > 0 {
		select {
		case a := <-r.answers:
			delete(r.waiting, a.node)
			take(a)
		case <-grace:
			return true
		case <-ctx.Done():
			return false
		}
		if grace != nil || !enough(len(r.waiting)) {
			continue
		}
		patience := time.Since(r.began) + 2*time.Millisecond
		if !r.worth(patience) {
			return true
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		grace = timer.C
	}
	return true
}

// worth: somebody who has not answered did so within d the last time.
func (r *round[T]) worth(d time.Duration) bool {
	for n := range r.waiting {
		if n.latency.Load() <= int64(d) {
			return true
		}
	}
	return false
}

// rest takes the answers that come after collect.
func (r *round[T]) rest(s *Store, take func(answer[T])) {
	left := len(r.waiting)
	if left == 0 {
		return
	}
	s.work.also(func() {
		for range left {
			take(<-r.answers)
		}
	})
}
