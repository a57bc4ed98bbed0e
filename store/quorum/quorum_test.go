package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// handle is a quorum store over memory stores that can have peers.
type handle struct {
	*quorum.Store
	nodes []*memory.Store
	votes bool // the nodes vote in one round trip
	opts  quorum.Options
}

// over returns a handle over new memory stores.
func over(t testing.TB, nodes int, votes bool) *handle {
	h := &handle{votes: votes, opts: quorum.Options{NodeTimeout: 5 * time.Second}} // on a busy machine too
	for range nodes {
		h.nodes = append(h.nodes, memory.New())
	}
	return h.open(t)
}

func (h *handle) open(t testing.TB) *handle {
	t.Helper()
	var stores []store.Store
	for _, n := range h.nodes {
		if h.votes {
			stores = append(stores, faultstore.Voter(n))
		} else {
			stores = append(stores, n)
		}
	}
	s, err := quorum.NewWithOptions(&h.opts, stores...)
	if err != nil {
		t.Fatal(err)
	}
	h.Store = s
	return h
}

// peer is another handle on the same locks.
func (h *handle) peer(t testing.TB) *handle {
	p := &handle{votes: h.votes, opts: h.opts}
	for _, n := range h.nodes {
		p.nodes = append(p.nodes, n.Peer())
	}
	return p.open(t)
}

func suite(nodes int, votes, bubble bool) conformance.Suite {
	return conformance.Suite{
		New:    func(t testing.TB) store.Store { return over(t, nodes, votes) },
		Peer:   func(t testing.TB, s store.Store) store.Store { return s.(*handle).peer(t) },
		Unfair: true,
		Apart:  true,
		Bubble: bubble,
	}
}

// TestConformance: over memory stores all cases pass but those that need an order
// among waiters, which independent nodes do not have.
func TestConformance(t *testing.T) { conformance.RunSuite(t, suite(3, true, false)) }

func TestConformanceInBubble(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, votes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d votes %v", nodes, votes), func(t *testing.T) { conformance.RunSuite(t, suite(nodes, votes, true)) })
		}
	}
}

// TestNew: what no quorum can be made of.
func TestNew(t *testing.T) {
	m := func() store.Store { return memory.New() }
	for name, stores := range map[string][]store.Store{
		"none": {}, "one": {m()}, "two": {m(), m()}, "four": {m(), m(), m(), m()},
		"nil": {m(), nil, m()}, "cannot raise": {m(), m(), struct{ store.Store }{m()}},
	} {
		if s, err := quorum.New(stores...); err == nil {
			t.Errorf("%s: no error", name)
			s.Close()
		}
	}
	for _, o := range []quorum.Options{{NodeTimeout: -1}, {LongestLease: -1}} {
		if _, err := quorum.NewWithOptions(&o, m(), m(), m()); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
