// Package quorum is a dlock store over several independent stores, such as Redis masters that know nothing of each
// other: Redlock, with fencing tokens that strictly increase. A lock is held when a majority of the nodes has it. Any
// minority of them may be dead, hung or slow, or have restarted without its data; that costs a little delay.
//
// Each operation goes to all nodes at once, with a timeout far below the lease. A vote is a node's answer that it has
// granted the request; errors are no votes. A request carries a token that the node gives to the hold if its counter
// is below (propose.go), and the node says with its vote whether it has lost data since it was last asked (life.go).
// When a majority has given the same token, the grant is complete. Otherwise the greatest token of the votes is written
// back to a majority before the grant is reported (commit.go). A request that did not win gives back what it got, and
// asks again under other ids (try.go).
//
// Two things that other stores can do are missing:
//
//   - First come, first served. Requests wait in the queues of the nodes and are woken by their events. The nodes agree
//     on nothing, so there is no common order among the requests that wait.
//   - Re-entry from another process. An owner and an acquisition id belong to one handle. An owner that asks through
//     another handle, or again after its process was restarted, waits like another owner. An id that was asked for
//     through one handle is repeated, renewed and released through the same handle.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

// minTTL leaves a claim room beside two rounds of messages.
const minTTL = 100 * time.Millisecond

// drain is how long Close waits for releases that are on their way.
const drain = time.Second

// Options of a store. The zero of each field means the default that its comment states.
type Options struct {
	// NodeTimeout bounds each call of one node. 0: a twentieth of the TTL, at most 500 ms and at least 100 ms or,
	// where that is less, a tenth of the TTL. It has to be far below the TTLs in use, and below a third of dlock's
	// StoreTimeout: a call may consist of three rounds.
	NodeTimeout time.Duration

	// LongestLease is the longest TTL that any client uses on these nodes. A node that lost its data does not vote
	// for so long, because holds that it has lost may live on at other nodes. A request with a longer TTL is refused
	// with an error that matches [store.ErrRefused]. 0: a node does not vote for the longer of TTL and WaitTTL of the
	// request. This is right if all clients use the same TTL for one name.
	LongestLease time.Duration

	// Durable says that the nodes have confirmed nothing that a restart can lose, as Redis with appendonly yes and
	// appendfsync always. Then a restart excludes no node.
	Durable bool

	// Fresh says that no client has used these nodes before this handle. Then they vote at once, although they may
	// just have started. It is for the first start of a new site, and true for a lease from New on: a node that the
	// handle meets later is judged by its age. On a handle that is opened while others hold locks, a node that has
	// just lost its data could let a second owner in. So could a node that restarts within that lease before the
	// handle has met it.
	Fresh bool

	// Own has Close close the nodes too. By default they stay the caller's.
	Own bool
}

// Store is one handle on the locks of a set of nodes. It is safe for concurrent use. Owners and acquisition ids belong
// to the handle: through another one, an owner does not re-enter a lock that it holds here, and an id is not known.
type Store struct {
	nodes []*node
	need  int // a majority
	opts  Options
	min   time.Duration

	opened    time.Time
	pulse     atomic.Int64 // how long the last round took
	longest   atomic.Int64 // the longest exclusion that a request asked for, for Views
	proposals proposals
	table     *table
	work      work
	sinks     sinks.List
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

// New returns a handle on the locks that the given stores keep together, with default options. There have to be three
// or more, an odd number, all of them [store.TokenRaiser]; every client has to be given the same ones, in any order.
// They must be independent: what kills one must not kill another. A store that is no [store.Incarnator] counts as one
// that never loses anything.
//
// New sends nothing. The stores stay the caller's: close them after this one.
func New(stores ...store.Store) (*Store, error) { return NewWithOptions(nil, stores...) }

// NewWithOptions is New with options; nil means defaults. An error says which option or store is invalid.
func NewWithOptions(opts *Options, stores ...store.Store) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case len(stores) < 3 || len(stores)%2 == 0:
		return nil, fmt.Errorf("quorum: %d nodes; it takes an odd number, three or more", len(stores))
	case o.NodeTimeout < 0:
		return nil, fmt.Errorf("quorum: NodeTimeout %v is negative", o.NodeTimeout)
	case o.LongestLease < 0:
		return nil, fmt.Errorf("quorum: LongestLease %v is negative", o.LongestLease)
	}
	s := &Store{need: len(stores)/2 + 1, opts: o, min: minTTL, opened: time.Now(), table: newTable(len(stores))}
	s.proposals.ahead, s.proposals.start = make([]atomic.Int64, len(stores)), time.Now()
	s.work.base, s.work.cut = context.WithCancel(context.Background())
	for i, inner := range stores {
		n, err := newNode(i, inner)
		if err != nil {
			return nil, err
		}
		s.min = max(s.min, inner.MinTTL())
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		n.deaf = n.store.Listen(func(e store.Event) { s.heard(n, e) })
	}
	return s, nil
}

// MinTTL implements [store.Store]: 100 ms, or the longest MinTTL of the nodes.
func (s *Store) MinTTL() time.Duration { return s.min }

// Close implements [store.Store]. Releases that are still on their way get a second to arrive, after that they are
// cut off.
func (s *Store) Close() error {
	if !s.work.close(drain) {
		return nil
	}
	s.sinks.Close()
	var errs []error
	for _, n := range s.nodes {
		n.deaf()
		if s.opts.Own {
			errs = append(errs, n.store.Close())
		}
	}
	return errors.Join(errs...)
}

// timeout of one call of a node for a lease.
func (s *Store) timeout(lease time.Duration) time.Duration {
	if s.opts.NodeTimeout > 0 {
		return s.opts.NodeTimeout
	}
	return max(min(lease/20, 500*time.Millisecond), min(lease/10, 100*time.Millisecond))
}

// tooLong is the error of a request for a lease that is longer than the options allow.
func (s *Store) tooLong(lease time.Duration) error {
	if s.opts.LongestLease == 0 || lease <= s.opts.LongestLease {
		return nil
	}
	return fmt.Errorf("%w: quorum: a lease of %v is longer than Options.LongestLease, %v",
		store.ErrRefused, lease, s.opts.LongestLease)
}

// exclusion is for how long a node that lost its data does not vote for a name with that lease. Names with longer
// leases do not matter: a vote is for one name.
func (s *Store) exclusion(lease time.Duration) time.Duration {
	if s.opts.Durable {
		return 0
	}
	return max(s.opts.LongestLease, lease)
}

// fresh says whether a node that is met for the first time at a moment has lost nothing before, by Options.Fresh. After
// a lease it may have had votes of other handles, and lost them.
func (s *Store) fresh(at time.Time, lease time.Duration) bool {
	return s.opts.Fresh && at.Sub(s.opened) < lease
}

// drift is how much the clock of a node may run ahead of ours in a lease: the margin that a claim keeps from its end.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }
