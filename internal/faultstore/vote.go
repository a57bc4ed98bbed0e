package faultstore

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

// Node is a store as quorums are made of.
type Node interface {
	store.Store
	store.Breaker
	store.Lister
	store.TokenRaiser
	store.Incarnator
}

// Voter returns a node that votes in one round trip. Its votes are its other methods one after the
// other.
func Voter(n Node) store.Store { return voter{n} }

type voter struct{ Node }

var _ store.Voter = voter{}

// Vote implements [store.Voter].
func (v voter) Vote(ctx context.Context, req store.Request, token uint64) (vote store.Vote, err error) {
	if vote.Grant, err = v.Acquire(ctx, req); err != nil || !vote.Grant.Held {
		return vote, err
	}
	if g := &vote.Grant; g.Holds == 1 && g.Token < token {
		ref := store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: req.TTL}
		if raised, err := v.RaiseToken(ctx, ref, token, req.Tokens); err == nil && raised != g.Token {
			g.Token, g.Short = raised, 0
		}
	}
	vote.Life, vote.Age, vote.Err = v.Incarnation(ctx)
	return vote, nil
}

// Vote implements [store.Voter], if the store behind does. It is an Acquire for rules and queries.
func (s *Store) Vote(ctx context.Context, req store.Request, token uint64) (store.Vote, error) {
	s.mu.Lock()
	_, ok := s.inner.(store.Voter)
	s.mu.Unlock()
	if !ok {
		return store.Vote{}, store.ErrUnsupported
	}
	r := s.call(ctx, &Call{Op: Acquire, Request: req}, func(ctx context.Context, inner store.Store, rate float64) Result {
		voter, ok := inner.(store.Voter)
		if !ok {
			return Result{Err: store.ErrUnsupported} // it was swapped meanwhile
		}
		arriving := req
		arriving.TTL, arriving.WaitTTL = scale(req.TTL, 1/rate), scale(req.WaitTTL, 1/rate)
		v, err := voter.Vote(ctx, arriving, token)
		v.Grant.TTL, v.Grant.Retry, v.Age = scale(v.Grant.TTL, rate), scale(v.Grant.Retry, rate), scale(v.Age, rate)
		return Result{Grant: v.Grant, Err: err, Life: v.Life, Age: v.Age, LifeErr: v.Err, Clock: v.Clock}
	})
	return store.Vote{Grant: r.Grant, Life: r.Life, Age: r.Age, Err: r.LifeErr, Clock: r.Clock}, r.Err
}
