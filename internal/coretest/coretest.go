// Package coretest is what the tests of package dlock share: two processes over one store in a
// synctest bubble ([World]), a store that a test can answer for ([Spy]), and checks.
//
// The packages below it test the promises of the public API from outside:
//
//   - faults: lost, late, repeated and forged messages between a client and its store,
//   - handover: the queue of one process, and locks that pass from one goroutine to the next,
//   - leases: how long a hold is valid, how its loss is reported, clocks and pauses,
//   - lifecycle: cancelled calls, limits, ids, and Close.
package coretest

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Open returns a client that is closed when the test ends. That Close has to succeed.
func Open(t testing.TB, s store.Store, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.New(s, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(), "close at the end of the test") })
	return c
}

// Locker is the part of Mutex and RWMutex that returns a Hold.
type Locker interface {
	LockContext(context.Context) (*dlock.Hold, error)
}

// MustLock locks m.
func MustLock(t testing.TB, ctx context.Context, m Locker) *dlock.Hold {
	t.Helper()
	h, err := m.LockContext(ctx)
	require.NoError(t, err)
	return h
}

// MustRLock locks rw for reading.
func MustRLock(t testing.TB, ctx context.Context, rw *dlock.RWMutex) *dlock.Hold {
	t.Helper()
	h, err := rw.RLockContext(ctx)
	require.NoError(t, err)
	return h
}

// WantError checks that err is one *dlock.Error of that operation and name, and that it
// matches cause.
func WantError(t testing.TB, err error, op, name string, cause error) {
	t.Helper()
	assert.ErrorIs(t, err, cause)
	var e *dlock.Error
	if assert.ErrorAs(t, err, &e) {
		assert.Equal(t, op, e.Op)
		assert.Equal(t, name, e.Name)
		var inner *dlock.Error
		assert.False(t, errors.As(e.Err, &inner), "an *Error inside an *Error: %v", err)
	}
}

// WantPanic checks that f panics with an *dlock.Error of that operation and cause.
func WantPanic(t testing.TB, f func(), op string, cause error) {
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

// WantRising checks that each token is greater than the one before it.
func WantRising(t testing.TB, tokens []uint64) {
	t.Helper()
	for i := 1; i < len(tokens); i++ {
		if !assert.Greater(t, tokens[i], tokens[i-1], "token %d", i) {
			return
		}
	}
}

// Inspect asks the store for the state of one name.
func Inspect(t testing.TB, s store.Store, name string) store.State {
	t.Helper()
	state, err := s.Inspect(context.Background(), name)
	require.NoError(t, err)
	return state
}

// Gauges returns what a client holds and does, without its counters.
func Gauges(c *dlock.Client) dlock.Stats {
	stats := c.Stats()
	stats.Counters = dlock.Counters{}
	return stats
}

// WantFree checks that the name has no holder and no waiter at the store.
func WantFree(t testing.TB, s store.Store, name string) {
	t.Helper()
	state := Inspect(t, s, name)
	assert.Empty(t, state.Holders, "holders of %q", name)
	assert.Empty(t, state.Queue, "queue of %q", name)
}

// Closed reports, without waiting, whether c is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
