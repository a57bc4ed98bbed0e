package real

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

// recorder stands before a store and writes down what is asked of it and what it
// answers.
type recorder struct {
	store.Store
	journal *journal
}

// Of what may be applied although this process never learns of it, should it be
// killed meanwhile, there is a record before it is sent, too.

func (s *recorder) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	r := record{
		Op: opAcquire, Call: now(), Name: req.Name, Shared: req.Mode == store.Shared, Queue: req.Queue,
		ID: req.ID, Owner: req.Owner, WaitTTL: req.WaitTTL, Outcome: unknown,
	}
	s.journal.add(r)
	g, err := s.Store.Acquire(ctx, req)
	r.Return, r.Outcome, r.Error = now(), outcome(err), message(err)
	if err == nil {
		r.Token, r.TTL, r.Holds, r.Position, r.Outcome = g.Token, g.TTL, g.Holds, g.Position, queued
		if g.Held {
			r.Outcome = held
		}
	}
	s.journal.add(r)
	return g, err
}

func (s *recorder) Renew(ctx context.Context, refs []store.Ref) []error {
	call := now()
	results := s.Store.Renew(ctx, refs)
	at := now()
	for i, err := range results {
		s.journal.add(ended(opRenew, call, at, refs[i], err))
	}
	return results
}

func (s *recorder) Release(ctx context.Context, ref store.Ref) error {
	call := now()
	s.journal.add(record{Op: opRelease, Call: call, Name: ref.Name, ID: ref.ID, Owner: ref.Owner, Bury: ref.Bury, Outcome: unknown})
	err := s.Store.Release(ctx, ref)
	s.journal.add(ended(opRelease, call, now(), ref, err))
	return err
}

func ended(op string, call, at moment, ref store.Ref, err error) record {
	return record{
		Op: op, Call: call, Return: at, Name: ref.Name, Shared: ref.Mode == store.Shared,
		ID: ref.ID, Owner: ref.Owner, TTL: ref.TTL, Bury: ref.Bury, Outcome: outcome(err), Error: message(err),
	}
}

func (s *recorder) Listen(sink func(store.Event)) (stop func()) {
	return s.Store.Listen(func(e store.Event) {
		s.journal.add(record{Op: opEvent, Call: now(), ID: e.ID, Token: e.Token})
		sink(e)
	})
}
