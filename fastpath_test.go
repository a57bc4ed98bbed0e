package dlock_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// instant is a store that grants everything at once and allocates nothing.
type instant struct {
	store.Store
	token atomic.Uint64
}

func (s *instant) Acquire(_ context.Context, req store.Request) (store.Grant, error) {
	return store.Grant{Held: true, Token: s.token.Add(uint64(req.Tokens)), TTL: req.TTL, Holds: 1}, nil
}

func (*instant) Renew(_ context.Context, holds []store.Ref) []error { return make([]error, len(holds)) }
func (*instant) Release(context.Context, store.Ref) error           { return nil }
func (*instant) Listen(func(store.Event)) (stop func())             { return func() {} }
func (*instant) MinTTL() time.Duration                              { return time.Millisecond }
func (*instant) Close() error                                       { return nil }

// An uncontended lock allocates little, on a store that allocates nothing.
func TestUncontendedLockAllocations(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		most float64
	}{"background": {context.Background(), 6}, "cancellable": {cancellable, 10}} {
		m := coretest.Open(t, &instant{}, nil).Mutex("m")
		got := testing.AllocsPerRun(20_000, func() {
			h, err := m.LockContext(tc.ctx)
			if err != nil || h.Unlock() != nil {
				t.Fatal(err)
			}
		})
		assert.LessOrEqual(t, got, tc.most, name)
	}
}

// A lock on the memory store allocates at most nine objects.
func TestMemoryStoreLockAllocations(t *testing.T) {
	m := coretest.Open(t, memory.New(), nil).Mutex("m")
	got := testing.AllocsPerRun(20_000, func() {
		h, err := m.LockContext(context.Background())
		if err != nil || h.Unlock() != nil {
			t.Fatal(err)
		}
	})
	assert.LessOrEqual(t, got, 9.0)
}

// A nested Do allocates at most five objects.
func TestNestedDoAllocations(t *testing.T) {
	m := coretest.Open(t, &instant{}, nil).Mutex("m")
	nothing := func(context.Context) error { return nil }
	require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
		got := testing.AllocsPerRun(20_000, func() {
			if err := m.Do(ctx, nothing); err != nil {
				t.Fatal(err)
			}
		})
		assert.LessOrEqual(t, got, 5.0)
		return nil
	}))
}

// The first request for a free name runs on the caller's goroutine, and no goroutine is started for
// it. The caller's context values reach the store.
func TestFirstRequestRunsOnTheCallersGoroutine(t *testing.T) {
	type key struct{}
	s := coretest.NewSpy(memory.New())
	c := coretest.Open(t, s, nil)
	require.NoError(t, coretest.MustLock(t, t.Context(), c.Mutex("before")).Unlock()) // starts the client's own goroutines
	var before int
	requests := 0
	s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		requests++
		stack := make([]byte, 1<<16)
		stack = stack[:runtime.Stack(stack, false)]
		assert.True(t, strings.Contains(string(stack), "TestFirstRequestRunsOnTheCallersGoroutine(") &&
			!strings.Contains(string(stack), "created by github.com/dlock-go/dlock."), "the request runs on another goroutine")
		assert.LessOrEqual(t, runtime.NumGoroutine(), before, "a goroutine was started")
		assert.Equal(t, "trace", ctx.Value(key{}))
		return s.Store.Acquire(ctx, req)
	})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
	defer cancel()
	for _, lock := range []func(context.Context) (*dlock.Hold, error){
		c.Mutex("m").LockContext, c.Mutex("m").TryLockContext, c.RWMutex("m").RLockContext,
	} {
		before = runtime.NumGoroutine()
		h, err := lock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
		assert.LessOrEqual(t, runtime.NumGoroutine(), before, "a goroutine is left")
	}
	assert.Equal(t, 3, requests)
}

// Re-entry allocates its handle and nothing else, and makes no store call.
func TestReentryAllocatesItsHandleOnly(t *testing.T) {
	// So many runs that a few allocations in the background do not count.
	const runs = 20_000
	s := coretest.NewSpy(memory.New())
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	rw := c.RWMutex("m")
	for name, f := range map[string]coretest.Locker{"write": rw, "mutex": c.Mutex("m")} {
		h := coretest.MustLock(t, t.Context(), f)
		ctx := h.Context(t.Context())
		calls := s.Calls()
		got := testing.AllocsPerRun(runs, func() {
			nested, err := f.LockContext(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := nested.Unlock(); err != nil {
				t.Fatal(err)
			}
		})
		assert.EqualValues(t, 1, got, name)
		assert.Equal(t, calls, s.Calls(), name)
		require.NoError(t, h.Unlock())
	}
	h := coretest.MustRLock(t, t.Context(), rw)
	ctx := h.Context(t.Context())
	assert.EqualValues(t, 1, testing.AllocsPerRun(runs, func() {
		nested, err := rw.RLockContext(ctx)
		if err != nil || nested.Unlock() != nil {
			t.Fatal(err)
		}
	}), "read")
	require.NoError(t, h.Unlock())
	require.NoError(t, c.Close())
}
