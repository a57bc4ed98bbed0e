package conformance

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

var _ store.Voter = (*modelHandle)(nil)

func (h *modelHandle) Vote(ctx context.Context, req store.Request, token uint64) (v store.Vote, err error) {
	m := h.model
	asked := req
	if m.is("a vote takes no place") {
		asked.Queue = false
	}
	if v.Grant, err = h.Acquire(ctx, asked); m.is("a vote beside a holder") && err != nil {
		return store.Vote{Grant: store.Grant{Held: true}}, nil
	}
	if err != nil || !v.Grant.Held {
		return v, err
	}
	ref := store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: req.TTL}
	switch {
	case token == 0:
	case m.is("a vote says a token that it does not give"):
		v.Grant.Token = token
	case token <= v.Grant.Token && m.is("a repeated vote raises again"):
		v.Grant.Token, _ = h.RaiseToken(ctx, ref, v.Grant.Token+1, req.Tokens)
	case v.Grant.Holds == 1 || m.is("a vote raises a re-entry"):
		if raised, err := h.RaiseToken(ctx, ref, token, req.Tokens); err == nil && raised != v.Grant.Token {
			v.Grant.Token, v.Grant.Short = raised, 0
		}
	}
	if !m.is("a vote has no life") {
		v.Life, v.Age, v.Err = h.Incarnation(ctx)
	}
	if m.is("the clock of a vote is ahead") {
		v.Clock = v.Grant.Token + 1_000_000
	}
	return v, nil
}
