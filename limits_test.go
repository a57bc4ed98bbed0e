package dlock_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 86: durations out of range are refused before any call of the store.
func TestFault86Durations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		for _, d := range []time.Duration{0, 1, time.Microsecond, 9999999, -1, -time.Hour, dlock.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
			_, err := c.Mutex("m", dlock.WithTTL(d)).LockContext(t.Context())
			wantError(t, err, "lock", "m", dlock.ErrInvalidTTL)
			_, err = c.RWMutex("m", dlock.WithTTL(d)).TryRLockContext(t.Context())
			wantError(t, err, "tryrlock", "m", dlock.ErrInvalidTTL)
		}
		for _, d := range []time.Duration{-1, math.MinInt64} {
			_, err := c.Mutex("m", dlock.WithMaxHold(d)).LockContext(t.Context())
			wantError(t, err, "lock", "m", dlock.ErrInvalidTTL)
		}
		assert.Zero(t, s.calls())
		for _, opts := range [][]dlock.LockOption{
			{dlock.WithTTL(10 * time.Millisecond)}, {dlock.WithTTL(dlock.MaxTTL)}, {dlock.WithMaxHold(math.MaxInt64)},
			{dlock.WithTTL(dlock.MaxTTL), dlock.WithoutRenewal(), dlock.WithMaxHold(math.MaxInt64)},
		} {
			h := mustLock(t, t.Context(), c.Mutex("m", opts...))
			assert.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
	})
}

// Fault 89: the limit on waiters holds at a number to choose, over all names,
// and the store sees one of them.
func TestFault89TooManyWaiters(t *testing.T) {
	const limit = 20_000
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		holder := open(t, s.Store.(*memory.Store).Peer(), nil)
		c := open(t, s, &dlock.Options{MaxWaiters: limit, WaitTTL: 30 * time.Second})
		held := []*dlock.Hold{mustLock(t, t.Context(), holder.Mutex("a")), mustLock(t, t.Context(), holder.Mutex("b"))}
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
		assert.Len(t, inspect(t, s, "a").Queue, 1)
		assert.LessOrEqual(t, s.acquires.Load(), int64(2))

		for _, name := range []string{"a", "b"} {
			_, err := c.Mutex(name).LockContext(ctx)
			wantError(t, err, "lock", name, dlock.ErrTooManyWaiters)
			_, err = c.Mutex(name).LockContext(dlock.WithOwner(ctx, dlock.NewOwner())) // past the line
			wantError(t, err, "lock", name, dlock.ErrTooManyWaiters)
			_, err = c.Mutex(name).TryLockContext(ctx)
			wantError(t, err, "trylock", name, dlock.ErrHeld) // a try does not wait
		}
		free := mustLock(t, t.Context(), c.Mutex("free")) // nor who need not
		require.NoError(t, mustLock(t, free.Context(t.Context()), c.Mutex("free")).Unlock())
		require.NoError(t, free.Unlock())
		synctest.Wait()
		assert.Len(t, inspect(t, s, "a").Queue, 1, "those refused keep no place")

		leave()
		wg.Wait()
		m := c.Mutex("a") // there is room again
		wg.Go(func() { m.Lock(); m.Unlock() })
		synctest.Wait()
		require.NoError(t, held[0].Unlock())
		wg.Wait()
		require.NoError(t, held[1].Unlock())
	})
}

// The limit is no obstacle to locks for which nobody has to wait.
func TestMaxWaitersDoesNotLimitHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{MaxWaiters: 1})
		var holds []*dlock.Hold
		for i := range 100 {
			holds = append(holds, mustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
		}
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
	})
}

// Lock does not panic for want of room: others will make some.
func TestLockGoesOnWhereTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := mustLock(t, t.Context(), open(t, s.Peer(), nil).Mutex("m"))
		m := open(t, s, &dlock.Options{MaxWaiters: 2}).Mutex("m")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { m.Lock(); m.Unlock() })
		}
		time.Sleep(time.Minute)
		require.NoError(t, h.Unlock())
		wg.Wait()
	})
}
