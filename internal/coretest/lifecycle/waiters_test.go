package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Calls for distinct names wait on a silent store. MaxWaiters bounds them as it bounds calls that
// wait for a held lock: calls beyond it fail at once, and no call starts a goroutine.
func TestMaxWaitersBoundsAnOutage(t *testing.T) {
	const limit, names = 1_000, 3_000
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{MaxWaiters: limit})
		s.GoSilent()
		ctx, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		before := runtime.NumGoroutine()
		var refused, cancelled atomic.Int64
		var wg sync.WaitGroup
		for i := range names {
			wg.Go(func() {
				_, err := c.Mutex(fmt.Sprint(i)).LockContext(ctx)
				switch {
				case errors.Is(err, dlock.ErrTooManyWaiters):
					refused.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					assert.Fail(t, "another end", "%v", err)
				}
			})
		}
		synctest.Wait()
		assert.EqualValues(t, names-limit, refused.Load(), "ErrTooManyWaiters")
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, limit+limit/10, "goroutines")
		assert.Equal(t, limit, c.Stats().Waiters)
		cancel()
		wg.Wait()
		assert.EqualValues(t, limit, cancelled.Load())
		s.Recover()
	})
}

// Calls without an answer to their first request are counted apart: as many as MaxWaiters are allowed, and at
// least a thousand. A try is not counted.
func TestCallsWithoutAnAnswerAreCountedApart(t *testing.T) {
	for most, allowed := range map[int]int{1: 1_000, 1_500: 1_500} {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, &dlock.Options{MaxWaiters: most})
			s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				if req.Queue {
					return store.Grant{}, coretest.Hang(ctx)
				}
				return store.Grant{}, store.ErrHeld
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range allowed {
				wg.Go(func() {
					_, err := c.Mutex(fmt.Sprint(i)).LockContext(ctx)
					assert.ErrorIs(t, err, context.Canceled)
				})
			}
			synctest.Wait()
			assert.Equal(t, allowed, c.Stats().Waiters)
			_, err := c.Mutex("m").LockContext(ctx)
			coretest.WantError(t, err, "lock", "m", dlock.ErrTooManyWaiters)
			_, err = c.Mutex("m").TryLockContext(ctx)
			coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
			assert.Equal(t, allowed, c.Stats().Waiters)
			cancel()
			wg.Wait()
		})
	}
}

// Calls that are refused, as too many wait, are not counted.
func TestRefusedCallsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		held := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		c := coretest.Open(t, s, &dlock.Options{MaxWaiters: 1})
		got := make(chan *dlock.Hold)
		go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		synctest.Wait()
		for range 3 {
			_, err := c.Mutex("m").LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrTooManyWaiters)
			assert.Equal(t, 1, c.Stats().Waiters)
		}
		require.NoError(t, held.Unlock())
		require.NoError(t, (<-got).Unlock())
		synctest.Wait()
		assert.Zero(t, coretest.Gauges(c))
	})
}
