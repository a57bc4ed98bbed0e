package quorum

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes a round trip to the quickest majority of the nodes. Nodes that have not
// confirmed it are asked again, in the background, until they have or until nothing of the id can be alive there.
// With fewer answers than a majority the error is [ErrNoQuorum], and the caller repeats it. Bury is kept by this
// handle, through which alone the id can be asked for.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	_, err := during(ctx, s, func(detached context.Context) (struct{}, error) { return struct{}{}, s.release(detached, ctx, ref) })
	return err
}

func (s *Store) release(ctx, caller context.Context, ref store.Ref) error {
	e := s.entries.take(key{ref.Name, ref.ID}, key{ref.Name, ref.Owner})
	defer s.entries.put(e)
	if err := e.o.enter(s.work.base, caller); err != nil {
		return err
	}
	defer e.o.leave()
	tries := e.releasing(ref, lifetime(ref.TTL, ref.TTL)+s.timeout(ref.TTL))
	c := count{errs: s.silence()}
	r := s.askToRelease(ctx, e, ref, tries, s.timeout(ref.TTL))
	r.collect(func(a answer[struct{}]) { c.take(a.node.index, a.err) },
		func(left int) bool { return c.done+c.lost >= s.need || c.done+c.lost+left < s.need })
	if c.done+c.lost < s.need {
		return s.verdict(c.errs)
	}
	r.rest(s, func(a answer[struct{}]) { s.unless(e, ref, tries, a) })
	for i, n := range s.nodes {
		if !r.waiting[n] {
			s.unless(e, ref, tries, answer[struct{}]{node: n, err: c.errs[i]})
		}
	}
	e.settle()
	// A place need not have been at a majority, and a hold need not be any more.
	if c.done >= s.need || c.done > 0 && c.lost <= len(s.nodes)-s.need {
		return nil
	}
	return store.ErrLost
}

// askToRelease has nodes release tries. While a request of a try is on its way, its release waits for the answer: else it
// would have to bury the id, and a node that is a little slower than the others would become much slower by that.
func (s *Store) askToRelease(ctx context.Context, e *entry, ref store.Ref, tries map[int]*try, timeout time.Duration) *round[struct{}] {
	var nodes []*node
	for i := range tries {
		nodes = append(nodes, s.nodes[i])
	}
	return ask(ctx, s, timeout, nodes, func(ctx context.Context, n *node) (struct{}, error) {
		e.await(ctx, tries[n.index], timeout/2)
		return struct{}{}, n.store.Release(ctx, e.refs(ref, tries)[n.index])
	})
}

// await returns when no request of a try is on its way, when ctx ends, or after d: then there is time left to bury the id.
func (e *entry) await(ctx context.Context, t *try, d time.Duration) {
	e.t.mu.Lock()
	idle := t.idle
	e.t.mu.Unlock()
	if idle == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// unless has a node release in the background what it has not released yet.
func (s *Store) unless(e *entry, ref store.Ref, tries map[int]*try, a answer[struct{}]) {
	if i := a.node.index; a.err != nil && !errors.Is(a.err, store.ErrLost) {
		s.later(e.refs(ref, map[int]*try{i: tries[i]}))
	}
}

// releasing notes that the id is being released, and returns its tries.
func (e *entry) releasing(ref store.Ref, lasts time.Duration) map[int]*try {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.forgetEvents()
	e.phase, e.partial = spent, false
	e.lasts(lasts)
	if ref.Bury {
		e.buried = time.Now().Add(ref.TTL)
	}
	return maps.Collect(slices.All(e.tries))
}

// settle notes that a majority has released the id, and that the others have to.
func (e *entry) settle() {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.end((*try).anything)
	e.until = e.buried
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

// refs returns the releases of tries.
func (e *entry) refs(ref store.Ref, ended map[int]*try) map[int]store.Ref {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	refs := make(map[int]store.Ref, len(ended))
	for i, t := range ended {
		ref.Bury = t.open()
		refs[i] = e.ref(ref, t)
	}
	return refs
}

// free ends tries of a request that was not granted, and blocks until their nodes have released them: the caller is
// about to say that the request has nothing, or to ask again. What is not confirmed in time goes on in the
// background.
func (s *Store) free(ctx context.Context, e *entry, req store.Request, which func(*try) bool) {
	tries := e.giveUp(which)
	r := s.askToRelease(ctx, e, refOf(req), tries, s.timeout(req.TTL)) // the ref's TTL may be that of a place
	r.collect(func(a answer[struct{}]) { s.unless(e, refOf(req), tries, a) }, never)
}

// later has nodes release tries in the background, for as long as something of them may be alive.
func (s *Store) later(refs map[int]store.Ref) {
	for i, ref := range refs {
		n := s.nodes[i]
		n.chores.add(s, n, chore{ref, time.Now().Add(lifetime(ref.TTL, ref.TTL) + 2*s.timeout(ref.TTL))})
	}
}
