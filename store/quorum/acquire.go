package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/store"
)

// tries is how often a request that does not wait is put again after several had
// met and none had got a majority.
const tries = 5

// Acquire implements [store.Store]. It takes a round trip to the quickest majority
// of the nodes, two if the nodes gave different tokens, and at worst blocks
// for the timeout of a node in each. Errors of nodes are no votes: with too many
// of them the error is [ErrNoQuorum].
//
// A request that has got some nodes but no majority keeps them for a moment, in
// which the others may follow. After that, without Queue at once, it gives them
// back, so that one of those who met here can win, and is put again after a
// random pause: without Queue before Acquire returns, with Queue after Retry. It
// keeps its places in the queues meanwhile.
//
// Where the nodes that answer have different tokens for an owner who holds already, and
// one does not answer, all are asked once more if ctx leaves the time for that: it may
// know the one that was granted.
//
// Grant.Holds may be too few if nodes have missed what the owner asked for through
// another handle. For the same reason Grant.Token may be greater than that of his hold
// while a node does not answer.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	return during(ctx, s, func(detached context.Context) (store.Grant, error) { return s.acquire(detached, ctx, req) })
}

// during runs f on a goroutine that goes on when ctx ends, and is given a ctx that
// does not.
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
	s.note(lease)
	e := s.entries.take(req.ID, len(s.nodes))
	defer s.entries.put(req.ID, e)
	if err := e.enter(s.work.base, caller); err != nil {
		return store.Grant{}, err
	}
	defer e.leave()
	e.promise.keep()
	e.begin(req)
	s.greet(ctx, s.timeout(req.TTL))
	enough := time.Now().Add(s.timeout(req.TTL) / 2)
	for try := 0; ; try++ {
		b := s.poll(ctx, e, req)
		if b.unsure() && s.hasTime(caller, req.TTL) {
			time.Sleep(rand.N(s.pause(b, 1)))
			before := b
			b = s.poll(ctx, e, req)
			b.inherit(before)
		}
		unheard := e.unheard()
		g, err := s.decide(ctx, e, b)
		met := errors.Is(err, store.ErrHeld) && len(b.held) > 0
		if !met || try == tries || time.Now().After(enough) {
			if certain(err) && !e.isOwned() {
				s.forget(e, b, unheard) // not between tries: it may arrive after a vote in the next one
				e.settle()
			}
			e.answer(err)
			return g, err
		}
		time.Sleep(rand.N(s.pause(b, try+1)))
	}
}

// hasTime reports whether a call may ask once more: there is time left for two rounds
// after that.
func (s *Store) hasTime(caller context.Context, ttl time.Duration) bool {
	ends, ok := caller.Deadline()
	return caller.Err() == nil && (!ok || time.Until(ends) > 3*s.timeout(ttl))
}

// pause is the longest that somebody waits who has given way so many times.
func (s *Store) pause(b *ballot, times int) time.Duration {
	base := min(max(time.Since(b.sent), time.Millisecond), 50*time.Millisecond)
	return min(base<<min(times, 6), 250*time.Millisecond)
}

// poll asks all nodes and counts their votes.
func (s *Store) poll(ctx context.Context, e *entry, req store.Request) *ballot {
	b := newBallot(s, e, req)
	timeout := s.timeout(req.TTL)
	life := req.TTL
	if req.Queue {
		life = lifetime(req.TTL, req.WaitTTL)
	}
	e.lasts(life + timeout)
	done := make([]func(known bool), len(s.nodes))
	for i := range done {
		done[i] = e.sending(i) // before it is: a release may come before the goroutine runs
	}
	var token uint64
	if b.token == 0 {
		token = s.proposals.next(req)
	}
	r := ask(ctx, s, timeout, s.nodes, func(ctx context.Context, n *node) (store.Vote, error) {
		v, err := s.vote(ctx, n, req, token, func() { b.granted[n.index].Store(true) })
		done[n.index](err == nil || certain(err))
		return v, err
	})
	r.collect(context.Background(), b.take, b.enough)
	if token != 0 && len(b.held) == 0 {
		s.proposals.drop(req, token)
	}
	s.pulse.Store(int64(time.Since(b.sent)))
	votes := len(b.votes)
	r.rest(s, func(a answer[store.Vote]) {
		switch {
		case a.err == nil && a.value.Grant.Held:
			e.noteLate(a.node.index, true)
			votes++
			s.late(ctx, e, a, votes >= s.need)
		case isMissing(a.err) && e.inUse():
			s.complete(ctx, e, []*node{a.node})
		}
	})
	return b
}

// late takes the answer of a node that nobody waited for. What it granted is left
// to it if the others have granted too, and given its token if that can be;
// else, if it makes a majority, its request is to be asked again. If it has been
// released meanwhile, so has this, with Bury.
func (s *Store) late(ctx context.Context, e *entry, a answer[store.Vote], enough bool) {
	e.mu.Lock()
	token, req := e.token, e.req
	granted, waits := e.granted, !e.granted && !e.released && req.Queue
	e.mu.Unlock()
	switch {
	case granted && a.value.Grant.Token < token:
		ctx, cancel := context.WithTimeout(ctx, s.timeout(req.TTL))
		defer cancel()
		defer context.AfterFunc(s.work.base, cancel)()
		_, _ = a.node.raiser.RaiseToken(ctx, refOf(req), token, req.Tokens) // the majority has it
	case waits && enough:
		s.emit(store.Event{ID: req.ID})
	}
}

// decide turns a ballot into an answer. What a request that is refused for certain has
// at nodes that have answered is given back.
func (s *Store) decide(ctx context.Context, e *entry, b *ballot) (store.Grant, error) {
	if len(b.votes) >= s.need {
		g, err := s.commit(ctx, b)
		if twins := s.twins(); twins != nil {
			err = twins
		}
		if wait, ok := b.untilVotes(err); ok {
			return s.queuedFor(ctx, e, b, wait), nil
		}
		if err != nil {
			s.leaveWith(ctx, e, b, err)
			return store.Grant{}, err
		}
		e.grant(g.Token, b.sent.Add(b.req.TTL))
		s.complete(ctx, e, b.missing)
		return g, nil
	}
	switch {
	case b.isUpgrade():
		s.giveBack(ctx, e, b, b.queued...)
		return store.Grant{}, store.ErrUpgrade
	case b.isSpoilt():
		s.bury(ctx, e, b)
		return store.Grant{}, fmt.Errorf("%w: releases of the request may still arrive at nodes whose votes it needs", store.ErrLost)
	case len(b.votes)+len(b.busy) < s.need || len(b.votes)+b.died >= s.need:
		err := s.verdict(b.errs)
		if wait, ok := b.untilVotes(err); ok {
			return s.queuedFor(ctx, e, b, wait), nil
		}
		s.leaveWith(ctx, e, b, err)
		return store.Grant{}, err
	case !b.req.Queue:
		g := store.Grant{Retry: b.retry(), HeldBy: b.heldBy()}
		if len(b.held) > 0 {
			g.Retry = s.pause(b, 1)
		}
		s.giveBack(ctx, e, b)
		return g, store.ErrHeld
	}
	return s.queued(ctx, e, b), nil
}

// leaveWith gives back what a request has got that ends with err: its places too if
// nobody will release it.
func (s *Store) leaveWith(ctx context.Context, e *entry, b *ballot, err error) {
	if certain(err) && !e.isOwned() {
		s.giveBack(ctx, e, b, b.queued...)
	} else {
		s.giveBack(ctx, e, b)
	}
}

// queuedFor is the answer to a request that waits for nodes to vote again.
func (s *Store) queuedFor(ctx context.Context, e *entry, b *ballot, wait time.Duration) store.Grant {
	g := s.queued(ctx, e, b)
	g.Retry = max(g.Retry, wait+time.Millisecond)
	return g
}

// queued is the answer to a request that waits.
func (s *Store) queued(ctx context.Context, e *entry, b *ballot) store.Grant {
	g := store.Grant{Token: b.told, Position: b.position(), Retry: b.retry(), HeldBy: b.heldBy()}
	e.mu.Lock()
	partial, splits := e.partial, e.splits
	e.partial = len(b.held) > 0 && !partial
	if partial && len(b.held) > 0 {
		e.splits++
	}
	e.mu.Unlock()
	switch {
	case len(b.held) == 0:
	case !partial:
		g.Retry = s.moment() + rand.N(2*s.moment())
	default:
		s.giveBack(ctx, e, b)
		g.Retry = s.moment() + rand.N(s.pause(b, splits+1))
	}
	return g
}

// lifetime is how long something of an id may be alive at a node from when a request of
// it arrives that may wait: its place may be granted at the end. A [store.Ref] knows
// only the longer of the two, which then stands for both.
func lifetime(ttl, waitTTL time.Duration) time.Duration { return max(ttl, 2*waitTTL) }

func refOf(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: max(req.TTL, req.WaitTTL)}
}
