package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Renew implements [store.Store]. A hold is renewed when a majority of the nodes
// has renewed it, and lost when so many have lost it that there is no majority
// left; anything else is [ErrNoQuorum]. It takes a round trip to the quickest
// majority and blocks for the timeout of a node at most.
//
// A node that has lost a hold is given it again in the background, if at the same
// time a majority has renewed it: nobody else can have a majority then, and no
// majority comes of it, as there is one. A hold that a minority has is never
// completed, for somebody may have held the lock in between.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	fail := func(err error) []error {
		for i := range results {
			results[i] = err
		}
		return results
	}
	if err := s.ready(ctx); err != nil || len(holds) == 0 {
		return fail(err)
	}
	renewed, err := during(ctx, s, func(ctx context.Context) ([]error, error) { return s.renew(ctx, holds), nil })
	if err != nil {
		return fail(err)
	}
	return renewed
}

// renewal is one batch, and what the nodes said of each hold.
type renewal struct {
	s      *Store
	holds  []store.Ref
	notes  []*entry // nil: another handle's
	counts []count
}

func (s *Store) renew(ctx context.Context, holds []store.Ref) []error {
	shortest := holds[0].TTL
	notes := make([]*entry, len(holds))
	for i, ref := range holds {
		shortest = min(shortest, ref.TTL)
		s.note(ref.TTL)
		if e := s.entries.take(ref.ID, 0); e != nil {
			e.prolong(ref.TTL)
			s.entries.put(ref.ID, e)
			notes[i] = e
		}
	}
	b := &renewal{s, holds, notes, make([]count, len(holds))}
	for i := range b.counts {
		b.counts[i].errs = make([]error, len(s.nodes))
		for k := range b.counts[i].errs {
			b.counts[i].errs[k] = errSilent
		}
	}
	r := ask(ctx, s, s.timeout(shortest), s.nodes, func(ctx context.Context, n *node) ([]error, error) {
		return n.store.Renew(ctx, holds), nil
	})
	r.collect(context.Background(), b.take, b.enough)
	results := make([]error, len(holds))
	for i, c := range b.counts {
		switch {
		case c.done >= s.need:
		case c.lost > len(s.nodes)-s.need, notes[i] != nil && notes[i].isGone():
			results[i] = store.ErrLost
		default:
			results[i] = s.verdict(c.errs)
		}
	}
	b.restore(ctx)
	return results
}

func (b *renewal) take(a answer[[]error]) {
	for i := range b.counts {
		err := errors.New("quorum: the node answered for too few holds")
		if i < len(a.value) {
			err = a.value[i]
		}
		if e := b.notes[i]; err == nil && e != nil && e.isTainted(a.node.index) {
			err = errTainted // it may be released there yet
		}
		b.counts[i].take(a.node.index, err)
	}
}

func (b *renewal) enough(left int) bool {
	for i := range b.counts {
		c := &b.counts[i]
		if c.done < b.s.need && c.done+left >= b.s.need {
			return false
		}
	}
	return true
}

// restore gives nodes back the holds that they alone have lost. One at a time: a
// node that restarted takes part again sooner than all its holds could be needed.
func (b *renewal) restore(ctx context.Context) {
	lost := make([][]int, len(b.s.nodes))
	some := false
	for i, c := range b.counts {
		for k, err := range c.errs {
			if c.done >= b.s.need && errors.Is(err, store.ErrLost) {
				lost[k], some = append(lost[k], i), true
			}
		}
	}
	if !some {
		return
	}
	for k, n := range b.s.nodes {
		if len(lost[k]) == 0 {
			continue
		}
		b.s.work.also(func() {
			for _, i := range lost[k] {
				if b.s.work.base.Err() != nil || !b.s.restore(ctx, n, b.holds[i]) {
					return
				}
			}
		})
	}
}

// restore asks a node for a hold again, with the token that it has. The renewal
// must be recent: a majority has it still. It reports whether the node answered.
func (s *Store) restore(ctx context.Context, n *node, ref store.Ref) bool {
	e := s.entries.take(ref.ID, 0)
	if e == nil {
		return true // another handle's
	}
	defer s.entries.put(ref.ID, e)
	req, token, done := e.resending(n.index)
	if done == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout(ref.TTL))
	defer cancel()
	defer context.AfterFunc(s.work.base, cancel)()
	req.Queue, req.TTL = false, ref.TTL
	g, err := n.store.Acquire(ctx, req)
	done(err == nil || certain(err))
	// As with each vote that counts, the node has to have reserved all.
	if err == nil && g.Held && (g.Token < token || g.Short > 0) {
		_, err = n.raiser.RaiseToken(ctx, ref, max(token, g.Token+1), req.Tokens)
	}
	return err == nil || certain(err)
}

// prolong notes that the hold, if it is one, may last for d from now on.
func (e *entry) prolong(d time.Duration) {
	e.lasts(d)
	e.mu.Lock()
	defer e.mu.Unlock()
	if ends := time.Now().Add(d); ends.After(e.ends) {
		e.ends = ends
	}
}
