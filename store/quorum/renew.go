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
	for _, ref := range holds {
		if err := s.tooLong(ref.TTL); err != nil {
			return s.renewShorter(ctx, holds)
		}
	}
	renewed, err := during(ctx, s, func(ctx context.Context) ([]error, error) { return s.renew(ctx, holds), nil })
	if err != nil {
		return fail(err)
	}
	return renewed
}

// renewShorter renews the holds of a batch whose leases are not too long.
func (s *Store) renewShorter(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	var rest []store.Ref
	for i, ref := range holds {
		if results[i] = s.tooLong(ref.TTL); results[i] == nil {
			rest = append(rest, ref)
		}
	}
	renewed := s.Renew(ctx, rest)
	for i := range results {
		if results[i] == nil {
			results[i], renewed = renewed[0], renewed[1:]
		}
	}
	return results
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
				if b.s.work.base.Err() != nil || !b.s.restoreRenewed(ctx, n, b.holds[i]) {
					return
				}
			}
		})
	}
}

// restoreRenewed gives a node a hold that a majority has just renewed. It reports whether
// the node answered.
func (s *Store) restoreRenewed(ctx context.Context, n *node, ref store.Ref) bool {
	e := s.entries.take(ref.ID, 0)
	if e == nil {
		return true // another handle's
	}
	defer s.entries.put(ref.ID, e)
	err := s.restore(ctx, n, e, ref.TTL)
	return err == nil || certain(err)
}

// isMissing reports whether a node with that answer lacks a hold that a majority has. A
// request that has timed out may be on its way yet; the next renewal looks after it.
func isMissing(err error) bool {
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// completions is how often a node that lacks a new hold is asked for it.
const completions = 4

// complete asks nodes that lack a hold for it, in the background, right after a majority
// has granted it: while only a bare majority has the hold, one of its nodes that loses
// the hold would let another owner in. A node where another request has the lock is
// asked again, because that request gives it back soon.
func (s *Store) complete(ctx context.Context, e *entry, missing []*node) {
	for _, n := range missing {
		s.work.also(func() {
			pause := s.moment()
			for range completions {
				if err := s.restore(ctx, n, e, 0); !errors.Is(err, store.ErrHeld) || !s.sleep(pause) {
					return
				}
				pause *= 4
			}
		})
	}
}

// sleep waits, and reports whether the handle is still open.
func (s *Store) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.work.base.Done():
		return false
	}
}

// restore asks a node for a hold that it lacks, with the token that the hold has, for the
// given lease; 0 means that of the request. A majority must have the hold. The error is
// that of the node, or nil if there was nothing to ask for.
func (s *Store) restore(ctx context.Context, n *node, e *entry, lease time.Duration) error {
	req, token, done := e.resending(n.index)
	if done == nil {
		return nil
	}
	if lease > 0 {
		req.TTL = lease
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout(req.TTL))
	defer cancel()
	defer context.AfterFunc(s.work.base, cancel)()
	req.Queue = false
	g, err := n.store.Acquire(ctx, req)
	done(err == nil || certain(err))
	// As with each vote that counts, the node has to have reserved all.
	if err == nil && g.Held && (g.Token < token || g.Short > 0) {
		_, err = n.raiser.RaiseToken(ctx, refOf(req), max(token, g.Token+1), req.Tokens)
	}
	return err
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
