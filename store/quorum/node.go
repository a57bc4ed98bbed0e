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
	waiting map[*node]bool // have not answered
	began   time.Time
}

// ask calls f for each of the nodes, at once and each with the timeout. The calls are detached from ctx, whose values
// they get: a caller that stops waiting does not stop a request whose outcome would be unknown then.
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

// collect takes answers until enough says that the others cannot matter, then for a little longer: as long as it took
// so far it waits for nodes of which an answer can be expected in that time, because what all nodes know is better
// than what a majority knows. enough is given how many are still to answer.
func (r *round[T]) collect(take func(answer[T]), enough func(left int) bool) {
	var grace <-chan time.Time
	for len(r.waiting) > 0 {
		select {
		case a := <-r.answers:
			delete(r.waiting, a.node)
			take(a)
		case <-grace:
			return
		}
		if grace != nil || !enough(len(r.waiting)) {
			continue
		}
		patience := time.Since(r.began) + 2*time.Millisecond
		if !r.likely(patience) {
			return
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		grace = timer.C
	}
}

// likely: a node that has not answered did so within d the last time.
func (r *round[T]) likely(d time.Duration) bool {
	for n := range r.waiting {
		if n.latency.Load() <= int64(d) {
			return true
		}
	}
	return false
}

// never is for calls that need the answers of all nodes.
func never(int) bool { return false }

// rest takes the answers that come after collect.
func (r *round[T]) rest(s *Store, take func(answer[T])) {
	for range len(r.waiting) {
		s.work.also(func() { take(<-r.answers) })
	}
}
