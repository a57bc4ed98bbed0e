package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Renew implements [store.Store]. A hold is renewed when a majority of the nodes has renewed it, and lost when so
// many have lost it that there is no majority left; anything else is [ErrNoQuorum]. It takes a round trip to the
// quickest majority and blocks for the timeout of a node for the longest of the leases at most.
//
// A node that has lost a hold is given it again in the background, if at the same time a majority has renewed it:
// nobody else can have a majority then, and no majority comes of it, as there is one. A hold that a minority has is
// never completed, for somebody may have held the lock in between. So a node counts only if its grant was heard before:
// another grant may have landed there late.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	if err := s.work.begin(ctx); err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	defer s.work.end()
	results := make([]error, len(holds))
	var batch []*renewal
	var timeout time.Duration
	for i, ref := range holds {
		if results[i] = s.tooLong(ref.TTL); results[i] != nil {
			continue
		}
		timeout = max(timeout, s.timeout(ref.TTL))
		r := &renewal{ref: ref, result: &results[i], sent: time.Now(), count: count{errs: s.silence()}}
		if results[i] = store.ErrLost; s.table.renewing(r, s.timeout(ref.TTL)) {
			batch = append(batch, r)
		}
	}
	if len(batch) > 0 {
		s.renew(ctx, batch, timeout)
	}
	return results
}

// renewal is one hold of a batch, and what the nodes said of it.
type renewal struct {
	ref    store.Ref
	result *error
	sent   time.Time
	e      *entry
	tries  []*try
	had    []bool // of each node: its grant was heard
	count
	unheard   int  // nodes that have the hold, and whose grant was not heard
	confirmed bool // by a majority
}

func (r *renewal) take(i int, err error) {
	if err == nil && !r.had[i] {
		err = errUnheard
		r.unheard++
	}
	r.count.take(i, err)
}

// renewing finds the entry of a hold, and notes that the hold may be at nodes for its lease and d from now on.
func (t *table) renewing(r *renewal, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.owners[key{r.ref.Name, r.ref.Owner}]; o != nil {
		r.e = o.entries[r.ref.ID]
	}
	if r.e == nil || slices.Contains(r.e.tries, nil) { // a hold has a try at each node
		return false
	}
	extend(&r.e.until, r.sent.Add(r.ref.TTL+d))
	r.tries, r.had = slices.Clone(r.e.tries), each(r.e.tries, (*try).granted)
	return true
}

// renew asks all nodes for all holds, until no answer can change a result. A node that answers later is given what it
// lacks too.
func (s *Store) renew(ctx context.Context, batch []*renewal, timeout time.Duration) {
	decided := make(chan struct{})
	ask(ctx, s, timeout, s.nodes, func(detached context.Context, n *node) ([]error, error) {
		refs := each(batch, func(r *renewal) store.Ref { return r.e.ref(r.ref, r.tries[n.index]) })
		errs := n.store.Renew(detached, refs)
		if lacked := lackedBy(n, batch, errs); len(lacked) > 0 {
			s.work.also(func() {
				<-decided
				var holds []*entry
				for _, r := range lacked {
					if r.confirmed {
						holds = append(holds, r.e)
					}
				}
				s.restore(ctx, n, holds...)
			})
		}
		return errs, nil
	}, func(a answer[[]error], left int) bool {
		for i, r := range batch {
			err := errors.New("quorum: the node answered for too few holds")
			if i < len(a.value) {
				err = a.value[i]
			}
			r.take(a.node.index, err)
		}
		return !slices.ContainsFunc(batch, func(r *renewal) bool { return r.done < s.need && r.done+left >= s.need })
	})
	for _, r := range batch {
		*r.result = s.renewed(r, ctx.Err())
		r.confirmed = *r.result == nil
	}
	close(decided)
}

// lackedBy returns the holds that a node has lost, which it notes, or whose grant there was not heard.
func lackedBy(n *node, batch []*renewal, errs []error) (lacked []*renewal) {
	for i, r := range batch[:min(len(batch), len(errs))] {
		if errors.Is(errs[i], store.ErrLost) {
			r.e.lost(r.tries[n.index])
		} else if errs[i] != nil || r.had[n.index] {
			continue
		}
		lacked = append(lacked, r)
	}
	return lacked
}

// renewed is what came of one hold. One that a majority has released meanwhile is lost, whichever nodes had renewed it
// before: its tries have ended. left is why the caller has left, if it has.
func (s *Store) renewed(r *renewal, left error) error {
	r.e.t.mu.Lock()
	defer r.e.t.mu.Unlock()
	lost := r.lost
	if r.e.phase == spent { // it is given to no node again, so these will not count
		lost += r.unheard
	}
	switch {
	case !slices.Equal(r.tries, r.e.tries):
		return store.ErrLost
	case r.done >= s.need:
		r.e.req.TTL = r.ref.TTL
		r.e.prolong(r.sent.Add(r.ref.TTL))
		return nil
	case lost > len(s.nodes)-s.need:
		if r.e.phase == granted {
			r.e.phase = spent
		}
		return store.ErrLost
	case left != nil:
		return left
	}
	return s.verdict(r.errs)
}

// restorations is how often a node that another request keeps from taking a hold is asked for it.
const restorations = 4

// restore asks a node for holds that it lacks while a majority has them, in the background: while only a bare majority
// has a hold, one of its nodes that loses the hold would let another owner in. Holds that another request is in the way
// of are asked for again, because that request gives back what it has soon. It is one hold at a time: a node that
// restarted takes part again sooner than all its holds could be needed.
func (s *Store) restore(ctx context.Context, n *node, holds ...*entry) {
	if len(holds) == 0 {
		return
	}
	s.work.spawn(func() {
		pause := s.moment()
		for range restorations {
			var again []*entry
			for _, e := range holds {
				err := s.restoreOne(ctx, n, e)
				if errors.Is(err, store.ErrHeld) {
					again = append(again, e)
				} else if err != nil && !certain(err) && !errors.Is(err, errBroken) {
					return
				}
			}
			if holds = again; len(holds) == 0 || !s.work.sleep(s.work.base, pause) {
				return
			}
			pause *= 4
		}
	})
}

// restoreOne asks for a hold with the token that it has. The error is that of the node, or nil if there was nothing to
// ask for.
func (s *Store) restoreOne(ctx context.Context, n *node, e *entry) error {
	t, req, token := e.lacking(n.index)
	if t == nil {
		return nil
	}
	ctx, end := s.work.detach(ctx, s.timeout(req.TTL))
	defer end()
	if !e.start(ctx, nil, t) {
		return nil
	}
	req.Queue = false
	g, err := n.store.Acquire(ctx, req)
	e.told(t, g, err)
	// As with each vote that counts, the node has to have reserved all.
	if err == nil && g.Held && (g.Token < token || g.Short > 0) {
		g, err = n.raise(ctx, req, max(token, g.Token+1), g)
		e.raised(t, g.Token)
	}
	return err
}
