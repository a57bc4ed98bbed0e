package quorum

import (
	"context"
	"fmt"
	"slices"
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
	leaving leaving
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

// call asks a node for something.
type call[T any] func(context.Context, *node) (T, error)

// answer is what a node said.
type answer[T any] struct {
	node  *node
	value T
	err   error
}

// ask calls f for each of the nodes at once, and gives the answers to take, on this goroutine, with the number of those
// that are still to come. It returns when ctx ends, or when take has said that the others do not matter. Before that it
// waits as long as it took so far for nodes of which an answer can be expected in that time, because what all nodes
// know is better than what a majority knows. Calls that it does not wait for go on until the timeout.
func ask[T any](ctx context.Context, s *Store, timeout time.Duration, nodes []*node, f call[T],
	take func(a answer[T], left int) (enough bool)) {
	if len(nodes) == 0 {
		return
	}
	began := time.Now()
	answers := make(chan answer[T], len(nodes))
	detached, end := s.work.detach(ctx, timeout)
	var running atomic.Int64
	running.Store(int64(len(nodes)))
	for _, n := range nodes {
		s.work.also(func() {
			value, err := f(detached, n)
			n.latency.Store(int64(time.Since(began)))
			answers <- answer[T]{n, value, err}
			if running.Add(-1) == 0 {
				end()
			}
		})
	}
	waiting := slices.Clone(nodes)
	var grace <-chan time.Time
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			waiting = slices.DeleteFunc(waiting, func(n *node) bool { return n == a.node })
			if !take(a, len(waiting)) || grace != nil {
				continue
			}
		case <-grace:
			return
		case <-ctx.Done():
			return
		}
		patience := time.Since(began) + 2*time.Millisecond
		soon := func(n *node) bool { return n.latency.Load() <= int64(patience) }
		if !slices.ContainsFunc(waiting, soon) {
			return
		}
		grace = time.After(patience)
	}
}
