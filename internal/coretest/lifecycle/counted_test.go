package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// A waiting call got the lock by another id than its first. Its Unlock does not wait for the first id, which
// has nothing at the store.
func TestUnlockAfterALostIDReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(2, 1)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, g, nil).Mutex("m")
		got := make(chan *dlock.Hold, 1)
		go func() { got <- coretest.MustLock(t, t.Context(), m) }()
		time.Sleep(waitTTL / 2) // the waiter asks again in this time
		require.NoError(t, other.Unlock())
		h := <-got
		require.Len(t, g.buried, 1, "the fault has had no effect")
		began := time.Now()
		require.NoError(t, h.Unlock())
		assert.Zero(t, time.Since(began))
	})
}
