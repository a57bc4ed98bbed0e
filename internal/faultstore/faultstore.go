// Package faultstore is test support: a [store.Store] in front of another one. It loses, delays,
// repeats and forges calls and events as a test has planned, and records every call. Without a plan
// it changes nothing.
//
// It is made for testing/synctest bubbles: it waits on channels and timers only.
//
//	s := faultstore.New(memory.New())
//	s.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropReply())
//	off := s.On(faultstore.Any, faultstore.Every, faultstore.Mute()) // until off()
//	s.OnEvent(faultstore.EveryEvent, faultstore.DelayEvent(time.Second))
//	...
//	s.Await(faultstore.Acquire, 2)
//	s.Calls(faultstore.Acquire)[0].Applied // 1: the store did it, the reply was lost
//
// Each handle has its own faults, so a test can treat two clients of one store differently.
package faultstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Op is a method of the store.
type Op uint8

// The operations. Any, in a rule or a query, means all of them.
const (
	Any Op = iota
	Acquire
	Renew
	Release
	RaiseToken
	Incarnation
	operations // how many there are
)

// String returns the name of the method.
func (op Op) String() string {
	return [...]string{"any", "acquire", "renew", "release", "raise token", "incarnation"}[op]
}

// Store is the handle with faults. It is safe for concurrent use.
type Store struct {
	mu         sync.Mutex
	inner      store.Store
	stop       func()  // stops listening to inner
	rate       float64 // of the clock, see Skew
	rules      []*rule
	eventRules []*eventRule
	calls      []*Call
	counts     [operations]int
	arrived    map[arrival]chan struct{}
	sinks      map[int]func(store.Event)
	lastID     int // the last key of sinks
	events     int // how many events came from inner
}

type rule struct {
	op     Op
	match  func(Call) bool
	faults []Fault
}

type arrival struct {
	op Op
	n  int
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.TokenRaiser = (*Store)(nil)
	_ store.Incarnator  = (*Store)(nil)
	_ store.Voter       = (*Store)(nil)
)

// New returns a handle in front of inner, without faults.
func New(inner store.Store) *Store {
	s := &Store{rate: 1, arrived: make(map[arrival]chan struct{}), sinks: make(map[int]func(store.Event))}
	s.Swap(inner)
	return s
}

// Swap puts another store behind the handle. An empty one means a restart that lost everything.
// Events of the old store do not arrive any more. Swap emits no event; Emit(store.Event{}) does
// what a reconnection would.
func (s *Store) Swap(inner store.Store) {
	stop := inner.Listen(func(e store.Event) { s.received(inner, e) })
	s.mu.Lock()
	s.inner, s.stop, stop = inner, stop, s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Skew makes the store's clock run at this rate of the caller's clock. At 1.01 its leases end
// after 99 % of their time, while its answers count in its own seconds.
func (s *Store) Skew(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = rate
}

// On applies the faults to the calls of op that match, until off is called. The first fault is the
// outermost. Of several rules that match, the latest one counts.
func (s *Store) On(op Op, match func(Call) bool, faults ...Fault) (off func()) {
	r := &rule{op, match, faults}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rules = without(s.rules, r)
	}
}

// Outage applies f to every call and drops all events, until heal is called.
func (s *Store) Outage(f Fault) (heal func()) {
	calls := s.On(Any, Every, f)
	events := s.OnEvent(EveryEvent, DropEvent())
	return func() { calls(); events() }
}

// call records c, sends it through the faults of the rule that matches, and records its result.
func (s *Store) call(ctx context.Context, c *Call, apply func(context.Context, store.Store, float64) Result) Result {
	c.Sent = time.Now()
	s.mu.Lock()
	for _, op := range []Op{Any, c.Op} {
		s.counts[op]++
		if ch := s.arrived[arrival{op, s.counts[op]}]; ch != nil {
			close(ch)
		}
	}
	c.N = s.counts[c.Op]
	s.calls = append(s.calls, c)
	deliver := func(ctx context.Context) Result {
		s.mu.Lock()
		inner, rate := s.inner, s.rate
		c.Applied++
		s.mu.Unlock()
		if ctx.Value(sentKey{}) != nil {
			ctx = context.WithoutCancel(ctx)
		}
		return apply(ctx, inner, rate)
	}
	faults := s.plan(c)
	s.mu.Unlock()

	for i := len(faults) - 1; i >= 0; i-- {
		fault, next := faults[i], deliver
		deliver = func(ctx context.Context) Result { return fault(ctx, next) }
	}
	r := deliver(ctx)
	if c.Op == Renew {
		r.Errs = spread(r, len(c.Refs))
	}
	s.mu.Lock()
	c.Returned, c.Result = time.Now(), r
	s.mu.Unlock()
	return r
}

// plan returns the faults of c. s.mu is held.
func (s *Store) plan(c *Call) []Fault {
	for i := len(s.rules) - 1; i >= 0; i-- {
		if r := s.rules[i]; (r.op == Any || r.op == c.Op) && r.match(*c) {
			return r.faults
		}
	}
	return nil
}

// spread returns one error for each hold of a batch, also if the call failed as a whole.
func spread(r Result, n int) []error {
	if r.Errs != nil {
		return r.Errs
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = r.Err
	}
	return errs
}

func scale(d time.Duration, by float64) time.Duration {
	if by == 1 {
		return d
	}
	return time.Duration(float64(d) * by)
}

// Acquire implements [store.Store].
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	r := s.call(ctx, &Call{Op: Acquire, Request: req}, func(ctx context.Context, inner store.Store, rate float64) Result {
		arriving := req // a copy, because the request may arrive more than once
		arriving.TTL, arriving.WaitTTL = scale(req.TTL, 1/rate), scale(req.WaitTTL, 1/rate)
		g, err := inner.Acquire(ctx, arriving)
		g.TTL, g.Retry = scale(g.TTL, rate), scale(g.Retry, rate)
		return Result{Grant: g, Err: err}
	})
	return r.Grant, r.Err
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	holds = append([]store.Ref(nil), holds...)
	return s.call(ctx, &Call{Op: Renew, Refs: holds}, func(ctx context.Context, inner store.Store, rate float64) Result {
		refs := append([]store.Ref(nil), holds...)
		for i := range refs {
			refs[i].TTL = scale(refs[i].TTL, 1/rate)
		}
		r := Result{Errs: inner.Renew(ctx, refs)}
		for _, err := range r.Errs {
			if err != nil {
				r.Err = err
				break
			}
		}
		return r
	}).Errs
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	return s.call(ctx, &Call{Op: Release, Refs: []store.Ref{ref}}, func(ctx context.Context, inner store.Store, rate float64) Result {
		arriving := ref
		arriving.TTL = scale(ref.TTL, 1/rate)
		return Result{Err: inner.Release(ctx, arriving)}
	}).Err
}

// errUnable is the answer when the store behind lacks the ability.
var errUnable = errors.New("faultstore: the store behind cannot do that")

// RaiseToken implements [store.TokenRaiser], if the store behind does.
func (s *Store) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	r := s.call(ctx, &Call{Op: RaiseToken, Refs: []store.Ref{ref}}, func(ctx context.Context, inner store.Store, _ float64) Result {
		raiser, ok := inner.(store.TokenRaiser)
		if !ok {
			return Result{Err: errUnable}
		}
		raised, err := raiser.RaiseToken(ctx, ref, token, tokens)
		return Result{Grant: store.Grant{Token: raised}, Err: err}
	})
	return r.Grant.Token, r.Err
}

// Incarnation implements [store.Incarnator], if the store behind does.
func (s *Store) Incarnation(ctx context.Context) (string, time.Duration, error) {
	r := s.call(ctx, &Call{Op: Incarnation}, func(ctx context.Context, inner store.Store, rate float64) Result {
		mortal, ok := inner.(store.Incarnator)
		if !ok {
			return Result{Err: errUnable}
		}
		id, age, err := mortal.Incarnation(ctx)
		return Result{Life: id, Age: scale(age, rate), Err: err}
	})
	return r.Life, r.Age, r.Err
}

// Inspect asks the store behind, without faults and without a record.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	return s.behind().Inspect(ctx, name)
}

// MinTTL is that of the store behind.
func (s *Store) MinTTL() time.Duration { return s.behind().MinTTL() }

// Close closes the store behind.
func (s *Store) Close() error { return s.behind().Close() }

func (s *Store) behind() store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}
