package dlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type (
	acquireFunc func(context.Context, store.Request) (store.Grant, error)
	renewFunc   func(context.Context, []store.Ref) []error
	releaseFunc func(context.Context, store.Ref) error
)

// spy is a store that counts the calls of a client and lets a test answer them
// in its own way, from one moment to the next.
type spy struct {
	store.Store
	acquires, renews, releases atomic.Int64

	acquire atomic.Pointer[acquireFunc] // nil: the store under it answers
	renew   atomic.Pointer[renewFunc]
	release atomic.Pointer[releaseFunc]
}

func newSpy(s store.Store) *spy { return &spy{Store: s} }

func (s *spy) onAcquire(f acquireFunc) { s.acquire.Store(&f) }
func (s *spy) onRenew(f renewFunc)     { s.renew.Store(&f) }
func (s *spy) onRelease(f releaseFunc) { s.release.Store(&f) }

func (s *spy) calls() int64 { return s.acquires.Load() + s.renews.Load() + s.releases.Load() }

func (s *spy) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	s.acquires.Add(1)
	if f := s.acquire.Load(); f != nil {
		return (*f)(ctx, req)
	}
	return s.Store.Acquire(ctx, req)
}

func (s *spy) Renew(ctx context.Context, holds []store.Ref) []error {
	s.renews.Add(1)
	if f := s.renew.Load(); f != nil {
		return (*f)(ctx, holds)
	}
	return s.Store.Renew(ctx, holds)
}

func (s *spy) Release(ctx context.Context, ref store.Ref) error {
	s.releases.Add(1)
	if f := s.release.Load(); f != nil {
		return (*f)(ctx, ref)
	}
	return s.Store.Release(ctx, ref)
}

var errDown = errors.New("connection refused")

// answer makes every call end as f says, with an outcome that is unknown.
func (s *spy) answer(f func(context.Context) error) {
	s.onAcquire(func(ctx context.Context, _ store.Request) (store.Grant, error) { return store.Grant{}, f(ctx) })
	s.onRelease(func(ctx context.Context, _ store.Ref) error { return f(ctx) })
	s.cutRenewals(f)
}

func (s *spy) cutRenewals(f func(context.Context) error) {
	s.onRenew(func(ctx context.Context, holds []store.Ref) []error {
		errs, err := make([]error, len(holds)), f(ctx)
		for i := range errs {
			errs[i] = err
		}
		return errs
	})
}

// failRenewals has those of one name fail.
func (s *spy) failRenewals(name string) {
	s.onRenew(func(ctx context.Context, holds []store.Ref) []error {
		errs := s.Store.Renew(ctx, holds)
		for i, ref := range holds {
			if ref.Name == name {
				errs[i] = errDown
			}
		}
		return errs
	})
}

func refuseConnection(context.Context) error { return errDown }

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func (s *spy) goDown() { s.answer(refuseConnection) }
func (s *spy) goMute() { s.answer(hang) }
func (s *spy) recover() {
	s.acquire.Store(nil)
	s.renew.Store(nil)
	s.release.Store(nil)
}

// losses collects what OnLost is told.
type losses struct {
	mu    sync.Mutex
	holds []*dlock.Hold
}

func (l *losses) add(h *dlock.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
}

func (l *losses) all() []*dlock.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.holds)
}

// open returns a client that the end of the test closes, cleanly.
func open(t *testing.T, s store.Store, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.New(s, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(), "close at the end of the test") })
	return c
}

// locker is what Mutex and RWMutex have in common.
type locker interface {
	LockContext(context.Context) (*dlock.Hold, error)
}

func mustLock(t *testing.T, ctx context.Context, m locker) *dlock.Hold {
	t.Helper()
	h, err := m.LockContext(ctx)
	require.NoError(t, err)
	return h
}

func mustRLock(t *testing.T, ctx context.Context, rw *dlock.RWMutex) *dlock.Hold {
	t.Helper()
	h, err := rw.RLockContext(ctx)
	require.NoError(t, err)
	return h
}

// wantError checks that err is one *Error of op on name with that cause.
func wantError(t *testing.T, err error, op, name string, cause error) {
	t.Helper()
	assert.ErrorIs(t, err, cause)
	var e *dlock.Error
	if assert.ErrorAs(t, err, &e) {
		assert.Equal(t, op, e.Op)
		assert.Equal(t, name, e.Name)
		var inner *dlock.Error
		assert.False(t, errors.As(e.Err, &inner), "wrapped twice: %v", err)
	}
}

// wantPanic checks that f panics with an *Error of that cause.
func wantPanic(t *testing.T, f func(), op string, cause error) {
	t.Helper()
	defer func() {
		t.Helper()
		err, ok := recover().(*dlock.Error)
		if assert.True(t, ok, "no panic with an *Error") {
			assert.ErrorIs(t, err, cause)
			assert.Equal(t, op, err.Op)
		}
	}()
	f()
}

func inspect(t *testing.T, s store.Store, name string) store.State {
	t.Helper()
	state, err := s.Inspect(context.Background(), name)
	require.NoError(t, err)
	return state
}

func wantFree(t *testing.T, s store.Store, name string) {
	t.Helper()
	state := inspect(t, s, name)
	assert.Empty(t, state.Holders, "holders of %q", name)
	assert.Empty(t, state.Queue, "queue of %q", name)
}

// closed reports, without waiting, whether c is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
