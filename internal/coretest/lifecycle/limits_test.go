package lifecycle

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Durations out of range are refused before any store call.
func TestFault86Durations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		for _, d := range []time.Duration{0, 1, time.Microsecond, 9999999, -1, -time.Hour, dlock.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
			_, err := c.Mutex("m", dlock.WithTTL(d)).LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidTTL)
			_, err = c.RWMutex("m", dlock.WithTTL(d)).TryRLockContext(t.Context())
			coretest.WantError(t, err, "tryrlock", "m", dlock.ErrInvalidTTL)
		}
		for _, d := range []time.Duration{-1, math.MinInt64} {
			_, err := c.Mutex("m", dlock.WithMaxHold(d)).LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidTTL)
		}
		assert.Zero(t, s.Calls())
		for _, opts := range [][]dlock.LockOption{
			{dlock.WithTTL(10 * time.Millisecond)}, {dlock.WithTTL(dlock.MaxTTL)}, {dlock.WithMaxHold(math.MaxInt64)},
			{dlock.WithTTL(dlock.MaxTTL), dlock.WithoutRenewal(), dlock.WithMaxHold(math.MaxInt64)},
		} {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m", opts...))
			assert.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
	})
}

// MaxWaiters limits the waiters of all names together, and the store sees one request a name.
func TestFault89TooManyWaiters(t *testing.T) {
	const limit = 20_000
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		holder := coretest.Open(t, s.Store.(*memory.Store).Peer(), nil)
		c := coretest.Open(t, s, &dlock.Options{MaxWaiters: limit, WaitTTL: 30 * time.Second})
		held := []*dlock.Hold{coretest.MustLock(t, t.Context(), holder.Mutex("a")), coretest.MustLock(t, t.Context(), holder.Mutex("b"))}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range limit {
			wg.Go(func() {
				name := "a"
				if i == 0 {
					name = "b"
				}
				_, err := c.Mutex(name).LockContext(ctx)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "a").Queue, 1)
		assert.LessOrEqual(t, s.Acquires.Load(), int64(2))

		for _, name := range []string{"a", "b"} {
			_, err := c.Mutex(name).LockContext(ctx)
			coretest.WantError(t, err, "lock", name, dlock.ErrTooManyWaiters)
			_, err = c.Mutex(name).LockContext(dlock.WithOwner(ctx, dlock.NewOwner())) // past the local queue
			coretest.WantError(t, err, "lock", name, dlock.ErrTooManyWaiters)
			_, err = c.Mutex(name).TryLockContext(ctx)
			coretest.WantError(t, err, "trylock", name, dlock.ErrHeld) // a try does not wait
		}
		free := coretest.MustLock(t, t.Context(), c.Mutex("free")) // a free lock needs no wait
		require.NoError(t, coretest.MustLock(t, free.Context(t.Context()), c.Mutex("free")).Unlock())
		require.NoError(t, free.Unlock())
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "a").Queue, 1, "refused calls keep no place")

		leave()
		wg.Wait()
		assert.EqualValues(t, limit, c.Stats().Waits, "refused calls did not wait")
		m := c.Mutex("a") // another call may wait again
		wg.Go(func() { m.Lock(); m.Unlock() })
		synctest.Wait()
		require.NoError(t, held[0].Unlock())
		wg.Wait()
		require.NoError(t, held[1].Unlock())
	})
}

// The limit does not concern locks that are free.
func TestMaxWaitersDoesNotLimitHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{MaxWaiters: 1})
		var holds []*dlock.Hold
		for i := range 100 {
			holds = append(holds, coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
		}
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
	})
}

// Lock does not panic when there are too many waiters, because others will return.
func TestLockGoesOnWhereTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		m := coretest.Open(t, s, &dlock.Options{MaxWaiters: 2}).Mutex("m")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { m.Lock(); m.Unlock() })
		}
		time.Sleep(time.Minute)
		require.NoError(t, h.Unlock())
		wg.Wait()
	})
}
