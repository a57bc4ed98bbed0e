package quorum

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Renew implements [store.Store]. A hold is renewed when a majority of the nodes has renewed it, and lost when so
// many have lost it that there is no majority left; anything else is [ErrNoQuorum]. It takes a round trip to the
// quickest majority and blocks for the timeout of a node at most.
//
// A node that has lost a hold is given it again in the background, if at the same time a majority has renewed it:
// nobody else can have a majority then, and no majority comes of it, as there is one. A hold that a minority has is
// never completed, for somebody may have held the lock in between.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results, err := during(ctx, s, func(ctx context.Context) ([]error, error) { return s.renew(ctx, holds), nil })
	if err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	return results
}

// renewal is one hold of a batch, and what the nodes said of it.
type renewal struct {
	count
	index int // in the batch
	e     *entry
	ref   store.Ref
	sent  time.Time
	tries []*try
}

// renew renews the holds of which the lease is not too long, and which this handle knows.
func (s *Store) renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	var batch []*renewal
	for i, ref := range holds {
		if results[i] = s.tooLong(ref.TTL); results[i] != nil {
			continue
		}
		e := s.entries.find(key{ref.Name, ref.ID})
		if e == nil {
			results[i] = store.ErrLost
			continue
		}
		defer s.entries.put(e)
		r := &renewal{count: count{errs: s.silence()}, index: i, e: e, ref: ref, sent: time.Now(), tries: e.renewing(ref.TTL + s.timeout(ref.TTL))}
		batch = append(batch, r)
	}
	if len(batch) == 0 {
		return results
	}
	s.askByTimeout(ctx, batch)
	lost := make([][]*renewal, len(s.nodes))
	for _, r := range batch {
		if results[r.index] = r.result(s); results[r.index] != nil {
			continue
		}
		for i, err := range r.errs {
			if errors.Is(err, store.ErrLost) {
				lost[i] = append(lost[i], r)
			}
		}
	}
	s.restoreAll(ctx, lost)
	return results
}

// renewing notes that the hold, if it is one, may be at nodes for d from now on, and returns the tries that it
// consists of.
func (e *entry) renewing(d time.Duration) []*try {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.lasts(d)
	return slices.Clone(e.tries)
}

// askByTimeout asks for holds with like timeouts together. With the shortest timeout for all, a slow node would renew no
// hold that is beside one with a short lease; with the longest, a hung node would hold up that one's answer.
func (s *Store) askByTimeout(ctx context.Context, batch []*renewal) {
	groups := make(map[int][]*renewal)
	for _, r := range batch {
		double := bits.Len64(uint64(s.timeout(r.ref.TTL)))
		groups[double] = append(groups[double], r)
	}
	var all sync.WaitGroup
	for _, group := range groups {
		all.Go(func() {
			shortest := slices.MinFunc(group, func(a, b *renewal) int { return cmp.Compare(a.ref.TTL, b.ref.TTL) })
			s.askToRenew(ctx, group, s.timeout(shortest.ref.TTL))
		})
	}
	all.Wait()
}

// askToRenew asks all nodes for all holds, until no answer can change a result.
func (s *Store) askToRenew(ctx context.Context, batch []*renewal, timeout time.Duration) {
	r := ask(ctx, s, timeout, s.nodes, func(ctx context.Context, n *node) ([]error, error) {
		refs := make([]store.Ref, len(batch))
		for i, r := range batch {
			refs[i] = r.e.ref(r.ref, r.tries[n.index])
		}
		return n.store.Renew(ctx, refs), nil
	})
	r.collect(func(a answer[[]error]) {
		for i, r := range batch {
			err := errors.New("quorum: the node answered for too few holds")
			if i < len(a.value) {
				err = a.value[i]
			}
			r.take(a.node.index, err)
		}
	}, func(left int) bool {
		return !slices.ContainsFunc(batch, func(r *renewal) bool { return r.done < s.need && r.done+left >= s.need })
	})
}

// result is what came of one hold. One that a majority has released meanwhile is lost, whichever nodes had renewed it
// before: its tries have ended.
func (r *renewal) result(s *Store) error {
	s.entries.mu.Lock()
	defer s.entries.mu.Unlock()
	switch {
	case r.e.phase == spent && !slices.Equal(r.tries, r.e.tries):
		return store.ErrLost
	case r.done >= s.need:
		r.e.req.TTL = r.ref.TTL
		r.e.prolong(r.sent.Add(r.ref.TTL))
		return nil
	case r.lost > len(s.nodes)-s.need:
		if r.e.phase == granted {
			r.e.phase = spent
		}
		return store.ErrLost
	}
	return s.verdict(r.errs)
}

// restoreAll gives nodes back the holds that they alone have lost, one at a time: a node that restarted takes part
// again sooner than all its holds could be needed.
func (s *Store) restoreAll(ctx context.Context, lost [][]*renewal) {
	for i, n := range s.nodes {
		if len(lost[i]) == 0 {
			continue
		}
		s.work.also(func() {
			for _, r := range lost[i] {
				if err := s.restore(ctx, n, r.e); s.work.base.Err() != nil || err != nil && !certain(err) {
					return
				}
			}
		})
	}
}

// isMissing reports whether a node with that answer lacks a hold that a majority has. A request that has timed out
// may be on its way yet; the next renewal looks after it.
func isMissing(err error) bool {
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// completions is how often a node that lacks a new hold is asked for it.
const completions = 4

// complete asks nodes that lack a hold for it, in the background, right after a majority has granted it: while only a
// bare majority has the hold, one of its nodes that loses the hold would let another owner in. A node where another
// request has the lock is asked again, because that request gives it back soon.
func (s *Store) complete(ctx context.Context, e *entry, missing []*node) {
	for _, n := range missing {
		s.work.also(func() {
			pause := s.moment()
			for range completions {
				if err := s.restore(ctx, n, e); !errors.Is(err, store.ErrHeld) || !s.sleep(pause) {
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

// restore asks a node for a hold that it lacks, with the token that the hold has. A majority must have the
// hold. The error is that of the node, or nil if there was nothing to ask for.
func (s *Store) restore(ctx context.Context, n *node, e *entry) error {
	sent := time.Now()
	t, req, token := e.resending(n.index)
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout(req.TTL))
	defer cancel()
	defer context.AfterFunc(s.work.base, cancel)()
	req.Queue = false
	req = e.asked(req, t)
	g, err := n.store.Acquire(ctx, req)
	e.told(t, sent, g.Held, err)
	// As with each vote that counts, the node has to have reserved all.
	if err == nil && g.Held && (g.Token < token || g.Short > 0) {
		_, _ = n.raise(ctx, req, max(token, g.Token+1), g)
	}
	return err
}
