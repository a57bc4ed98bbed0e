package dlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/store"
)

// Observer sees what a client does, for metrics and traces; package otel has one. Set
// it in Options.Observer. Its methods are called at the same time from many
// goroutines. They run inside the calls that they observe, so they must be fast and
// must not block, panic or call the client.
//
// The Begin methods return the context for what they begin, ctx itself or one made
// from it: so a store's calls become children of the call that makes them. The End
// method gets that context back.
type Observer interface {
	// BeginLock is called when a lock is asked for, also by a nested call. op is
	// "lock", "trylock", "rlock" or "tryrlock". Lock and TryLock have no context;
	// ctx is context.Background then.
	BeginLock(ctx context.Context, op, name string) context.Context
	// EndLock is called when that call ends.
	EndLock(ctx context.Context, e LockEvent)
	// EndHold is called when a handle ends: by Unlock, by a loss or by Close.
	EndHold(e HoldEvent)
	// BeginCall is called before a call of the store. op is "acquire", "renew",
	// "release", "inspect", "list" or "break". name is empty if the call has not
	// exactly one.
	BeginCall(ctx context.Context, op, name string) context.Context
	// EndCall is called after it.
	EndCall(ctx context.Context, e CallEvent)
}

// LockEvent is the end of a call that asked for a lock.
type LockEvent struct {
	Op, Name string
	Took     time.Duration
	Err      error // nil: the lock is held
}

// HoldEvent is the end of a handle.
type HoldEvent struct {
	Name   string
	Shared bool          // a reader's
	Nested bool          // its owner held the lock already; false for one handle of each lost hold
	Held   time.Duration // until the end of its Unlock, or its loss
	Lost   LossCause     // empty: it was not lost
}

// LossCause says why a hold was lost.
type LossCause string

// The causes of a loss.
const (
	LostDeadline LossCause = "deadline" // the deadline passed without a confirmed renewal
	LostFixed    LossCause = "fixed"    // the lease ran out and is not renewed
	LostMaxHold  LossCause = "max_hold" // MaxHold was reached
	LostGone     LossCause = "gone"     // the store says that the hold is gone
)

// CallEvent is the end of a call of the store.
type CallEvent struct {
	Op, Name string
	Names    int // holds that a renewal is for; otherwise 1, and 0 for a list
	Failed   int // renewals among them that were not confirmed
	Took     time.Duration
	Err      error // nil also for a renewal: Failed counts those
}

// observedAcquire is take with the observer around it.
func (l *locker) observedAcquire(ctx context.Context, wait bool) (*Hold, error) {
	o, op := l.client.opts.Observer, l.op("trylock")
	if wait {
		op = l.op("lock")
	}
	began := time.Now()
	within := o.BeginLock(ctx, op, l.config.Name)
	h, err := l.take(within, wait)
	got := time.Now()
	told := false
	defer func() {
		if !told && err == nil {
			_ = h.core.Unlock() // EndLock panics, so nobody gets the hold
		}
	}()
	o.EndLock(within, LockEvent{Op: op, Name: l.config.Name, Took: got.Sub(began), Err: err})
	told = true
	if err != nil {
		return nil, err
	}
	e := HoldEvent{Name: l.config.Name, Shared: l.mode == store.Shared}
	h.core.AtEnd(func(end error) {
		e.Nested, e.Held, e.Lost = h.core.Nested(), time.Since(got), lossCauses[end]
		if e.Lost == "" {
			o.EndHold(e)
		} else {
			l.client.core.Notify(func() { o.EndHold(e) }) // what is told of a loss waits for no observer
		}
	})
	return h, nil
}

// lossCauses names the errors that a lost hold ends with. Any other end is no loss.
var lossCauses = map[error]LossCause{
	core.ErrDeadline: LostDeadline, core.ErrFixedEnded: LostFixed, core.ErrMaxHold: LostMaxHold, core.ErrGone: LostGone,
}

// observedStore is a store with an observer around the calls that locks need.
type observedStore struct {
	store.Store
	observer Observer
}

// observed makes one call of the store, with the observer around it if there is one. The
// call may change the event.
func observed(ctx context.Context, o Observer, e *CallEvent, call func(context.Context) error) {
	if o == nil {
		e.Err = call(ctx)
		return
	}
	ctx = o.BeginCall(ctx, e.Op, e.Name)
	began := time.Now()
	e.Err = call(ctx)
	e.Took = time.Since(began)
	o.EndCall(ctx, *e)
}

func (s *observedStore) Acquire(ctx context.Context, req store.Request) (g store.Grant, err error) {
	e := CallEvent{Op: "acquire", Name: req.Name, Names: 1}
	observed(ctx, s.observer, &e, func(ctx context.Context) error {
		g, err = s.Store.Acquire(ctx, req)
		return err
	})
	return g, err
}

func (s *observedStore) Renew(ctx context.Context, refs []store.Ref) (errs []error) {
	e := CallEvent{Op: "renew", Names: len(refs)}
	if len(refs) == 1 {
		e.Name = refs[0].Name
	}
	observed(ctx, s.observer, &e, func(ctx context.Context) error {
		errs = s.Store.Renew(ctx, refs)
		for _, err := range errs {
			if err != nil {
				e.Failed++
			}
		}
		return nil
	})
	return errs
}

func (s *observedStore) Release(ctx context.Context, ref store.Ref) error {
	e := CallEvent{Op: "release", Name: ref.Name, Names: 1}
	observed(ctx, s.observer, &e, func(ctx context.Context) error { return s.Store.Release(ctx, ref) })
	return e.Err
}
