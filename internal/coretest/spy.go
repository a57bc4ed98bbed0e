package coretest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

type (
	acquireFunc func(context.Context, store.Request) (store.Grant, error)
	renewFunc   func(context.Context, []store.Ref) []error
	releaseFunc func(context.Context, store.Ref) error
)

// Spy is a store that counts the calls of a client and lets a test answer them. The test may
// change the answers at any time.
type Spy struct {
	store.Store
	Acquires, Renews, Releases atomic.Int64

	acquire atomic.Pointer[acquireFunc] // nil: the store behind answers
	renew   atomic.Pointer[renewFunc]
	release atomic.Pointer[releaseFunc]
}

// NewSpy returns a Spy in front of s that changes nothing.
func NewSpy(s store.Store) *Spy { return &Spy{Store: s} }

// OnAcquire makes f answer each Acquire.
func (s *Spy) OnAcquire(f func(context.Context, store.Request) (store.Grant, error)) {
	s.acquire.Store((*acquireFunc)(&f))
}

// OnRenew makes f answer each Renew.
func (s *Spy) OnRenew(f func(context.Context, []store.Ref) []error) {
	s.renew.Store((*renewFunc)(&f))
}

// OnRelease makes f answer each Release.
func (s *Spy) OnRelease(f func(context.Context, store.Ref) error) {
	s.release.Store((*releaseFunc)(&f))
}

// HoldAcquires keeps every Acquire on its way until arrive is closed. A caller whose context ends
// before does not stop its request: the store does it when it arrives.
func (s *Spy) HoldAcquires(arrive <-chan struct{}) {
	type answer struct {
		grant store.Grant
		err   error
	}
	s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		reply := make(chan answer, 1)
		go func() {
			<-arrive
			g, err := s.Store.Acquire(context.WithoutCancel(ctx), req)
			reply <- answer{g, err}
		}()
		select {
		case a := <-reply:
			return a.grant, a.err
		case <-ctx.Done():
			return store.Grant{}, ctx.Err()
		}
	})
}

// AcquireFunc returns the function that OnAcquire was given last.
func (s *Spy) AcquireFunc() func(context.Context, store.Request) (store.Grant, error) {
	return *s.acquire.Load()
}

// Calls returns how many calls were made.
func (s *Spy) Calls() int64 { return s.Acquires.Load() + s.Renews.Load() + s.Releases.Load() }

// Acquire implements [store.Store].
func (s *Spy) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	s.Acquires.Add(1)
	if f := s.acquire.Load(); f != nil {
		return (*f)(ctx, req)
	}
	return s.Store.Acquire(ctx, req)
}

// Renew implements [store.Store].
func (s *Spy) Renew(ctx context.Context, holds []store.Ref) []error {
	s.Renews.Add(1)
	if f := s.renew.Load(); f != nil {
		return (*f)(ctx, holds)
	}
	return s.Store.Renew(ctx, holds)
}

// Release implements [store.Store].
func (s *Spy) Release(ctx context.Context, ref store.Ref) error {
	s.Releases.Add(1)
	if f := s.release.Load(); f != nil {
		return (*f)(ctx, ref)
	}
	return s.Store.Release(ctx, ref)
}

// ErrDown is the answer of a store whose server cannot be reached. It means an unknown outcome.
var ErrDown = errors.New("connection refused")

// Answer makes every call end as f says, with an unknown outcome.
func (s *Spy) Answer(f func(context.Context) error) {
	s.OnAcquire(func(ctx context.Context, _ store.Request) (store.Grant, error) { return store.Grant{}, f(ctx) })
	s.OnRelease(func(ctx context.Context, _ store.Ref) error { return f(ctx) })
	s.CutRenewals(f)
}

// CutRenewals makes every renewal end as f says.
func (s *Spy) CutRenewals(f func(context.Context) error) {
	s.OnRenew(func(ctx context.Context, holds []store.Ref) []error {
		errs, err := make([]error, len(holds)), f(ctx)
		for i := range errs {
			errs[i] = err
		}
		return errs
	})
}

// FailRenewals makes the renewals of one name fail, and only these.
func (s *Spy) FailRenewals(name string) {
	s.OnRenew(func(ctx context.Context, holds []store.Ref) []error {
		errs := s.Store.Renew(ctx, holds)
		for i, ref := range holds {
			if ref.Name == name {
				errs[i] = ErrDown
			}
		}
		return errs
	})
}

// Refuse is the end of a call whose connection is refused at once.
func Refuse(context.Context) error { return ErrDown }

// Hang is the end of a call that is never answered.
func Hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Sleep returns nil after d, or the error of ctx as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Outages are the two ways in which a server is out of reach.
var Outages = map[string]func(context.Context) error{"down": Refuse, "silent": Hang}

// GoDown makes every call fail at once.
func (s *Spy) GoDown() { s.Answer(Refuse) }

// GoSilent makes every call hang until its context ends.
func (s *Spy) GoSilent() { s.Answer(Hang) }

// Recover makes the store behind answer again.
func (s *Spy) Recover() {
	s.acquire.Store(nil)
	s.renew.Store(nil)
	s.release.Store(nil)
}

// Losses collects the holds that OnLost reports.
type Losses struct {
	mu    sync.Mutex
	holds []*dlock.Hold
}

// Add is an OnLost function.
func (l *Losses) Add(h *dlock.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
}

// All returns the holds so far.
func (l *Losses) All() []*dlock.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.holds)
}
