package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/store"
)

// rounds is how often a request that does not wait is put again after several had met and none had got a majority.
const rounds = 5

// contest is how often a request that waits gives way before it takes others for holders, not for requests that met it.
const contest = 8

// Acquire implements [store.Store]. It takes a round trip to the quickest majority of the nodes, two if the nodes
// gave different tokens, and at worst blocks for the timeout of a node in each. Errors of nodes are no votes: with
// too many of them the error is [ErrNoQuorum].
//
// A request that has got some nodes but no majority keeps them for a moment, in which the others may follow. After
// that, without Queue at once, it gives them back, so that one of the requests that met here can win. It is put again
// after a random pause: without Queue before Acquire returns, with Queue after Retry. It keeps its places in the
// queues meanwhile.
//
// An owner is one of this handle: see [Store]. A re-entry gets a greater token than the hold of the owner if fewer
// nodes than a majority answer that they know that hold.
func (s *Store) Acquire(ctx context.Context, req store.Request) (g store.Grant, err error) {
	if err := s.work.begin(ctx); err != nil {
		return g, err
	}
	defer s.work.end()
	if err := s.tooLong(max(req.TTL, req.WaitTTL)); err != nil {
		return g, err
	}
	o, err := s.table.enter(ctx, s.work.base, key{req.Name, req.Owner})
	if err != nil {
		return g, err
	}
	defer s.table.leave(o)
	e, ended, err := o.begin(req, lifetime(req.TTL, req.WaitTTL)+2*s.timeout(req.TTL))
	if err != nil {
		return g, err
	}
	s.later(e, refOf(req), ended)
	g, err = s.acquire(ctx, e, req)
	s.later(e, refOf(req), e.answered(err))
	return g, err
}

func (s *Store) acquire(ctx context.Context, e *entry, req store.Request) (store.Grant, error) {
	began := time.Now()
	for round := 1; ; round++ {
		b := s.poll(ctx, e, req)
		if err := ctx.Err(); err != nil {
			return store.Grant{}, err
		}
		g, err := s.decide(ctx, b)
		met := b.holding > 0 && (errors.Is(err, store.ErrHeld) || b.undecided()) || errors.Is(err, errBroken)
		enough := s.timeout(req.TTL) / 2
		if b.undecided() {
			enough += s.timeout(req.TTL) // of the node that is silent
		}
		switch {
		case err == nil || round > rounds || time.Since(began) > enough:
			return g, err
		case met && s.work.sleep(ctx, rand.N(s.pause(b, round))):
		case !met && b.onceMore():
		default:
			return g, err
		}
	}
}

// pause is the longest that a request waits that has given way so many times.
func (s *Store) pause(b *ballot, times int) time.Duration {
	base := min(max(time.Since(b.sent), time.Millisecond), 50*time.Millisecond)
	return min(base<<min(times, 6), 250*time.Millisecond)
}

// poll asks all nodes and counts their votes.
func (s *Store) poll(ctx context.Context, e *entry, req store.Request) *ballot {
	b := newBallot(s, e, req)
	var token uint64
	if b.known.token == 0 {
		token = s.proposals.next(b.req)
	}
	ask(ctx, s, s.timeout(b.req.TTL), s.nodes, func(detached context.Context, n *node) (v store.Vote, err error) {
		n.leaving.await(detached, b.req.Name, s.timeout(b.req.TTL)/4)
		t := b.tries[n.index]
		if !e.start(detached, ctx.Done(), t) {
			return v, errSilent
		}
		v, err = s.vote(detached, n, e.asked(b.req, t), token)
		if e.told(t, v.Grant, err) {
			s.restore(ctx, n, e)
		}
		return v, err
	}, func(a answer[store.Vote], left int) bool {
		b.take(a)
		return b.enough(left)
	})
	b.holding = e.holding()
	s.pulse.Store(int64(time.Since(b.sent)))
	return b
}

// decide turns a ballot into an answer. What a request that is refused for certain has at nodes that have answered is
// given back.
func (s *Store) decide(ctx context.Context, b *ballot) (store.Grant, error) {
	switch {
	case len(b.votes) >= s.need:
		g, err := s.commit(ctx, b)
		if twins := s.twins(); twins != nil {
			err = twins
		}
		if err != nil {
			return s.failed(ctx, b, err)
		}
		for _, i := range b.entry.grant(g.Token, b.sent.Add(b.req.TTL)) {
			s.restore(ctx, s.nodes[i], b.entry)
		}
		return g, nil
	case len(b.votes)+len(b.busy) < s.need || len(b.votes)+b.died >= s.need,
		b.undecided() && (b.isUpgrade() || !b.req.Queue):
		return s.failed(ctx, b, s.verdict(b.errs))
	case b.isUpgrade():
		s.giveBack(ctx, b, (*try).granted)
		return store.Grant{}, store.ErrUpgrade
	case !b.req.Queue:
		g := b.refusal()
		if b.holding > 0 {
			g.Retry = s.pause(b, 1)
		}
		s.giveBack(ctx, b, (*try).granted)
		return g, store.ErrHeld
	}
	return s.queued(ctx, b), nil
}

// failed is the answer to a request that ends with err, or that has only to wait for nodes to vote again. It gives
// back what the request has got.
func (s *Store) failed(ctx context.Context, b *ballot, err error) (store.Grant, error) {
	var none *NoQuorumError
	if wait, ok := b.untilVotes(); ok && wait > 0 && b.req.Queue && errors.As(err, &none) {
		g := s.queued(ctx, b)
		g.Retry = max(g.Retry, wait+time.Millisecond)
		return g, nil
	}
	s.giveBack(ctx, b, (*try).granted)
	return store.Grant{}, err
}

// queued is the answer to a request that waits. A request that has had a part of the nodes twice gives them back.
func (s *Store) queued(ctx context.Context, b *ballot) store.Grant {
	g, e := b.refusal(), b.entry
	g.Token, g.Position = b.told, max(1, g.Position)
	if b.holding == 0 {
		e.parts &^= 1
		return g
	}
	if e.parts++; e.parts%2 == 1 {
		g.Retry = s.moment() + rand.N(2*s.moment())
		return g
	}
	s.giveBack(ctx, b, (*try).granted)
	// After so many rounds nobody meets it any more: a majority is held, and the holder lacks what was given back. Its
	// next renewal takes that, if it is free then. The end of the hold comes as an event, or with its lease.
	more := min(max(e.parts/2-contest, 0), 4)
	pause := rand.N(s.pause(b, e.parts/2))
	g.Retry = s.moment() + max(pause, min(pause<<more, g.Retry))
	return g
}

// lifetime is how long something of an id may be alive at a node from when a request of it arrives that may wait: its
// place may be granted at the end. A [store.Ref] knows only the longer of the two, which then stands for both.
func lifetime(ttl, waitTTL time.Duration) time.Duration { return max(ttl, 2*waitTTL) }

func refOf(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: max(req.TTL, req.WaitTTL)}
}
