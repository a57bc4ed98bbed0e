package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes a round trip to the quickest majority of the nodes. Nodes that have not
// confirmed it are asked again, in the background, until they have or until nothing of the id can be alive there.
// With fewer answers than a majority the error is [ErrNoQuorum], and the caller repeats it. Bury is kept by this
// handle, through which alone the id can be asked for.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.work.begin(ctx); err != nil {
		return err
	}
	defer s.work.end()
	o, err := s.table.enter(ctx, s.work.base, key{ref.Name, ref.Owner})
	if err != nil {
		return err
	}
	defer s.table.leave(o)
	c := count{errs: s.silence()}
	e, tries := o.releasing(ref, lifetime(ref.TTL, ref.TTL)+s.timeout(ref.TTL))
	for i := range tries {
		if len(tries[i]) == 0 {
			c.take(i, store.ErrLost)
		}
	}
	s.release(ctx, e, ref, tries, s.timeout(ref.TTL), func(a answer[struct{}], left int) bool {
		c.take(a.node.index, a.err)
		return c.done+c.lost >= s.need || c.done+c.lost+left < s.need
	})
	switch {
	case c.done+c.lost >= s.need:
		e.settle()
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return s.verdict(c.errs)
	}
	// A place need not have been at a majority, and a hold need not be any more.
	if c.done >= s.need || c.done > 0 && c.lost <= len(s.nodes)-s.need {
		return nil
	}
	return store.ErrLost
}

// releasing notes that the id is being released, and returns the tries that may have left something. Those of before
// are among them: that their releases were sent does not say that nodes have done them.
func (o *ownerState) releasing(ref store.Ref, d time.Duration) (*entry, [][]*try) {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	e, now := o.take(ref.ID), time.Now()
	e.forgetEvents()
	e.phase = spent
	extend(&e.until, now.Add(d))
	if ref.Bury {
		e.buried = now.Add(ref.TTL)
	}
	tries := make([][]*try, len(e.tries))
	for i, t := range e.tries {
		tries[i] = slices.Clone(e.left[i])
		if t == nil {
			continue
		}
		if t.ended = true; t.anything() {
			tries[i] = slices.Insert(tries[i], 0, t) // it stays in the entry, for a renewal if no majority releases it
		}
	}
	return e, tries
}

// settle notes that a majority has released the id, and that the others have to.
func (e *entry) settle() {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if e.buried.After(time.Now()) {
		e.end(every)
		e.until = e.buried
		return
	}
	e.t.drop(e)
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

// release has nodes release tries. While a request of a try is on its way, its release waits for the answer: else it
// would have to bury the id, and a node that is a little slower than the others would become much slower by that.
// A try that the node has refused is not released. A release that a node does not confirm goes on in the background.
func (s *Store) release(ctx context.Context, e *entry, ref store.Ref, tries [][]*try, timeout time.Duration,
	take func(a answer[struct{}], left int) bool) {
	var nodes []*node
	left := make([]func(), len(tries))
	for i := range tries {
		if len(tries[i]) > 0 {
			nodes, left[i] = append(nodes, s.nodes[i]), s.nodes[i].leaving.begin(ref.Name)
		}
	}
	ask(ctx, s, timeout, nodes, func(ctx context.Context, n *node) (done struct{}, result error) {
		defer left[n.index]()
		found := false
		for _, t := range tries[n.index] {
			e.await(ctx, t, timeout/2)
			ref, needed := e.burying(ref, t)
			if !needed {
				e.dismiss(n.index, t, true)
				continue
			}
			err := n.store.Release(ctx, ref)
			if settled(err) {
				e.dismiss(n.index, t, confirmed(err))
			} else {
				n.chores.add(s, n, chore{ref: ref, entry: e, try: t})
			}
			if found = found || err == nil; err != nil && !errors.Is(err, store.ErrLost) {
				result = err
			}
		}
		if result == nil && !found {
			result = store.ErrLost
		}
		return done, result
	}, take)
}

// await returns when no request of a try is on its way, when ctx ends, or after d: then there is time to bury the id.
func (e *entry) await(ctx context.Context, t *try, d time.Duration) {
	e.t.mu.Lock()
	asked := t.asked
	e.t.mu.Unlock()
	if asked != nil {
		waitFor(ctx, asked, d)
	}
}

// giveBack ends tries of a request that was not granted, and blocks until their nodes have released them: the caller is
// about to say that the request has nothing, or to ask again.
func (s *Store) giveBack(ctx context.Context, b *ballot, which func(*try) bool) {
	s.release(ctx, b.entry, refOf(b.req), b.entry.giveUp(which), s.timeout(b.req.TTL), notEnough)
}

// later has nodes release tries in the background.
func (s *Store) later(e *entry, ref store.Ref, tries [][]*try) {
	if slices.ContainsFunc(tries, func(of []*try) bool { return len(of) > 0 }) {
		s.work.also(func() { s.release(s.work.base, e, ref, tries, s.timeout(ref.TTL), notEnough) })
	}
}

// notEnough has all nodes waited for.
func notEnough(answer[struct{}], int) bool { return false }
