package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes a round trip to the quickest majority
// of the nodes. Those that have not confirmed it are told again, in the background,
// until they have or until nothing of the id can be alive there; the id is buried at
// each node where an ask of it has no known outcome, though the majority's was known.
// With fewer answers than a majority the error is [ErrNoQuorum], and the caller
// repeats it.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	_, err := during(ctx, s, func(detached context.Context) (struct{}, error) { return struct{}{}, s.release(detached, ctx, ref) })
	return err
}

func (s *Store) release(ctx, caller context.Context, ref store.Ref) error {
	e := s.entries.take(ref.ID, len(s.nodes))
	defer s.entries.put(ref.ID, e)
	if err := e.enter(s.work.base, caller); err != nil {
		return err
	}
	defer e.leave()
	e.promise.keep()
	e.mu.Lock()
	e.released, e.granted, e.partial = true, false, false
	e.mu.Unlock()

	refs := make([]store.Ref, len(s.nodes))
	for i := range refs {
		refs[i] = ref
		refs[i].Bury = ref.Bury || e.open(i)
	}
	c := &count{errs: make([]error, len(s.nodes))}
	timeout := s.timeout(ref.TTL)
	r := ask(ctx, s, timeout, s.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.store.Release(ctx, refs[n.index])
	})
	for i := range c.errs {
		c.errs[i] = errSilent
	}
	r.collect(context.Background(), func(a answer[struct{}]) { c.take(a.node.index, a.err) },
		func(left int) bool { return c.done+c.lost >= s.need || c.done+c.lost+left < s.need })
	known := c.done+c.lost >= s.need
	r.rest(s, func(a answer[struct{}]) {
		if known && a.err != nil && !errors.Is(a.err, store.ErrLost) {
			s.later(e, a.node, refs[a.node.index])
		}
	})
	if !known {
		e.lasts(lifetime(ref.TTL, ref.TTL) + timeout)
		return s.verdict(c.errs)
	}
	e.bygone()
	for i, err := range c.errs {
		if err != nil && !errors.Is(err, store.ErrLost) {
			if e.taint(i, lifetime(ref.TTL, ref.TTL)+timeout); !r.waiting[s.nodes[i]] { // else when it has answered
				s.later(e, s.nodes[i], refs[i])
			}
		}
	}
	e.settle()
	// A place need not have been at a majority, and a hold need not be any more.
	if c.done >= s.need || c.done > 0 && c.lost <= len(s.nodes)-s.need {
		return nil
	}
	return store.ErrLost
}

// count is what came of a call that nodes do or find nothing for.
type count struct {
	done, lost int
	errs       []error
}

func (c *count) take(i int, err error) {
	c.errs[i] = err
	switch {
	case err == nil:
		c.done++
	case errors.Is(err, store.ErrLost):
		c.lost++
	}
}

// giveBack releases what a request has got in vain, at the nodes that it holds and
// at more of them, and blocks until they have answered. A node that does not is one
// whose vote for this id does not count any more: the release may arrive after
// a later vote, and nobody would know. An id that was granted before keeps what it
// has: this is a repeated request, which is harmless.
func (s *Store) giveBack(ctx context.Context, e *entry, b *ballot, more ...*node) {
	nodes := slices.Concat(b.held, more)
	if e.inUse() || len(nodes) == 0 {
		return
	}
	ref := refOf(b.req)
	told := make(map[*node]bool)
	r := ask(ctx, s, s.timeout(b.req.TTL), nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.store.Release(ctx, ref)
	})
	r.collect(context.Background(), func(a answer[struct{}]) {
		told[a.node] = a.err == nil || errors.Is(a.err, store.ErrLost)
	}, func(int) bool { return false })
	for _, n := range nodes {
		if !told[n] {
			s.later(e, n, ref)
		}
	}
}

// bury ends an id that no majority can grant any more, because releases of it may still
// arrive at too many nodes: whoever waits by it takes another. It is released, and
// refused from then on, at all nodes, in the background.
func (s *Store) bury(ctx context.Context, e *entry, b *ballot) {
	e.mu.Lock()
	e.released, e.granted, e.partial = true, false, false
	e.mu.Unlock()
	s.giveBack(ctx, e, b, b.queued...)
	ref := refOf(b.req)
	ref.Bury = true
	for _, n := range s.nodes {
		s.later(e, n, ref)
	}
}

// forget buries an id that was refused for certain, at the nodes that had not been heard
// when it was decided on: nobody will release it. An id that has a place will be released.
func (s *Store) forget(e *entry, b *ballot, unheard []bool) {
	ref := refOf(b.req)
	ref.Bury = true
	for i, n := range s.nodes {
		if unheard[i] || errors.Is(b.errs[i], errSilent) {
			s.later(e, n, ref)
		}
	}
}

// later has a node told in the background, whose vote for the id does not count from then
// on, for as long as that may take.
func (s *Store) later(e *entry, n *node, ref store.Ref) {
	lasts := lifetime(ref.TTL, ref.TTL) + 2*s.timeout(ref.TTL)
	e.taint(n.index, lasts+s.timeout(ref.TTL)) // the last try may have been sent at the end
	n.chores.add(s, n, chore{ref, time.Now().Add(lasts)})
}
