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
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	return during(ctx, s, func(detached context.Context) (store.Grant, error) { return s.acquire(detached, ctx, req) })
}

// during runs f on a goroutine that goes on when ctx ends, and is given a ctx that does not.
func during[T any](ctx context.Context, s *Store, f func(context.Context) (T, error)) (value T, err error) {
	if err := s.ready(ctx); err != nil {
		return value, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	detached := context.WithoutCancel(ctx)
	if !s.work.spawn(func() {
		value, err := f(detached)
		done <- result{value, err}
	}) {
		return value, store.ErrClosed
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

func (s *Store) acquire(ctx, caller context.Context, req store.Request) (store.Grant, error) {
	lease := max(req.TTL, req.WaitTTL)
	if err := s.tooLong(lease); err != nil {
		return store.Grant{}, err
	}
	e := s.entries.take(key{req.Name, req.ID}, key{req.Name, req.Owner})
	defer s.entries.put(e)
	if err := e.o.enter(s.work.base, caller); err != nil {
		return store.Grant{}, err
	}
	defer e.o.leave()
	left, err := e.begin()
	if err != nil {
		return store.Grant{}, err
	}
	s.later(e.refs(refOf(req), left))
	s.greet(ctx, s.timeout(req.TTL))
	enough := time.Now().Add(s.timeout(req.TTL) / 2)
	for round := 0; ; round++ {
		b := s.poll(ctx, e, req)
		g, err := s.decide(ctx, e, b)
		again := errors.Is(err, store.ErrHeld) && b.holding > 0 || errors.Is(err, errBroken)
		if !again || round == rounds || time.Now().After(enough) {
			if !e.answered(err) { // the caller will not release it
				s.later(e.refs(refOf(req), e.giveUp((*try).anything)))
			}
			return g, err
		}
		time.Sleep(rand.N(s.pause(b, round+1)))
	}
}

// pause is the longest that a request waits that has given way so many times.
func (s *Store) pause(b *ballot, times int) time.Duration {
	base := min(max(time.Since(b.sent), time.Millisecond), 50*time.Millisecond)
	return min(base<<min(times, 6), 250*time.Millisecond)
}

// poll asks all nodes and counts their votes.
func (s *Store) poll(ctx context.Context, e *entry, req store.Request) *ballot {
	timeout := s.timeout(req.TTL)
	b := newBallot(s, e, req)
	b.tries = e.sending(req, lifetime(req.TTL, req.WaitTTL)+timeout) // noted before it is done: a release may come before the goroutine runs
	var token uint64
	if b.known.token == 0 {
		token = s.proposals.next(req)
	}
	r := ask(ctx, s, timeout, s.nodes, func(ctx context.Context, n *node) (store.Vote, error) {
		v, err := s.vote(ctx, n, e.asked(req, b.tries[n.index]), token)
		e.told(b.tries[n.index], b.sent, v.Grant.Held, err)
		return v, err
	})
	r.collect(b.take, b.enough)
	b.holding = e.holding()
	if token != 0 && b.holding == 0 {
		s.proposals.drop(req, token)
	}
	s.pulse.Store(int64(time.Since(b.sent)))
	r.rest(s, func(a answer[store.Vote]) {
		if isMissing(a.err) {
			s.complete(ctx, e, []*node{a.node}) // if a majority has granted by now
		}
	})
	return b
}

// decide turns a ballot into an answer. What a request that is refused for certain has at nodes that have answered is
// given back.
func (s *Store) decide(ctx context.Context, e *entry, b *ballot) (store.Grant, error) {
	if len(b.votes) >= s.need {
		g, err := s.commit(ctx, b)
		if twins := s.twins(); twins != nil {
			err = twins
		}
		if err == nil {
			e.granting(g.Token, b.sent.Add(b.req.TTL))
			s.complete(ctx, e, b.missing)
			return g, nil
		}
		return s.failed(ctx, e, b, err)
	}
	switch {
	case b.isUpgrade():
		s.free(ctx, e, b.req, (*try).anything)
		return store.Grant{}, store.ErrUpgrade
	case len(b.votes)+len(b.busy) < s.need || len(b.votes)+b.died >= s.need:
		return s.failed(ctx, e, b, s.verdict(b.errs))
	case !b.req.Queue:
		g := b.waits()
		if b.holding > 0 {
			g.Retry = s.pause(b, 1)
		}
		s.free(ctx, e, b.req, (*try).holds)
		return g, store.ErrHeld
	}
	return s.queued(ctx, e, b), nil
}

// failed is the answer to a request that ends with err, or that has only to wait for nodes to vote again. It gives
// back what the request has got, and its places too if nobody will release it.
func (s *Store) failed(ctx context.Context, e *entry, b *ballot, err error) (store.Grant, error) {
	if wait, ok := b.untilVotes(err); ok {
		g := s.queued(ctx, e, b)
		g.Retry = max(g.Retry, wait+time.Millisecond)
		return g, nil
	}
	s.free(ctx, e, b.req, (*try).holds)
	return store.Grant{}, err
}

// queued is the answer to a request that waits.
func (s *Store) queued(ctx context.Context, e *entry, b *ballot) store.Grant {
	g := b.waits()
	g.Token, g.Position = b.told, max(1, atMajority(b, func(g store.Grant) int { return g.Position }))
	s.entries.mu.Lock()
	partial, splits := e.partial, e.splits
	e.partial = b.holding > 0 && !partial
	if partial && b.holding > 0 {
		e.splits++
	}
	s.entries.mu.Unlock()
	switch {
	case b.holding == 0:
	case !partial:
		g.Retry = s.moment() + rand.N(2*s.moment())
	default:
		s.free(ctx, e, b.req, (*try).holds)
		g.Retry = s.moment() + rand.N(s.pause(b, splits+1))
	}
	return g
}

// lifetime is how long something of an id may be alive at a node from when a request of it arrives that may wait: its
// place may be granted at the end. A [store.Ref] knows only the longer of the two, which then stands for both.
func lifetime(ttl, waitTTL time.Duration) time.Duration { return max(ttl, 2*waitTTL) }

func refOf(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: max(req.TTL, req.WaitTTL)}
}
