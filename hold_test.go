package dlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHoldUnlockedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		done := h.Done()
		assert.NoError(t, h.Err())
		assert.False(t, closed(done))
		require.NoError(t, h.Unlock())
		assert.True(t, closed(done))
		assert.True(t, closed(h.Done()), "also when first asked for now")
		assert.Equal(t, dlock.ErrNotHeld, h.Err())

		next := mustLock(t, t.Context(), c.Mutex("m"))
		calls := s.calls()
		wantError(t, h.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		assert.Equal(t, calls, s.calls())
		assert.NoError(t, next.Err())
		require.NoError(t, next.Unlock())
	})
}

func TestHoldUnlockedTwiceNeverEatsANestedHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := open(t, s, nil).Mutex("m").As(dlock.NewOwner())
		first := mustLock(t, t.Context(), m)
		second := mustLock(t, t.Context(), m)
		require.NoError(t, first.Unlock())
		for range 3 {
			wantError(t, first.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		}
		assert.Equal(t, dlock.ErrNotHeld, first.Err())
		assert.True(t, closed(first.Done()))
		assert.False(t, closed(second.Done()))
		assert.NoError(t, second.Err())
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		require.NoError(t, second.Unlock())
	})
}

func TestHoldUnlockedByManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		h := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		var good atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := h.Unlock(); err == nil {
					good.Add(1)
				} else {
					assert.ErrorIs(t, err, dlock.ErrNotHeld)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, good.Load())
		assert.EqualValues(t, 1, s.releases.Load())
	})
}

// Whoever is told that the lock is free can rely on the holder having been told before.
func TestHoldIsOverBeforeTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		h := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		done, ctx := h.Done(), h.Context(t.Context())
		s.onRelease(func(c context.Context, ref store.Ref) error {
			assert.True(t, closed(done))
			assert.Equal(t, dlock.ErrNotHeld, h.Err())
			assert.Equal(t, dlock.ErrNotHeld, context.Cause(ctx))
			return s.Store.Release(c, ref)
		})
		require.NoError(t, h.Unlock())
		assert.EqualValues(t, 1, s.releases.Load())
	})
}

func TestHoldUnlockReturnsWhenTheStoreHasConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			time.Sleep(time.Second)
			return s.Store.Release(ctx, ref)
		})
		start := time.Now()
		require.NoError(t, h.Unlock())
		assert.Equal(t, time.Second, time.Since(start))
		assert.True(t, c.Mutex("m").TryLock())
		s.recover()
	})
}

// Without confirmation Unlock returns after StoreTimeout, and the release goes
// on until it is confirmed.
func TestHoldUnlockOnASilentStore(t *testing.T) {
	for name, out := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				c := open(t, s, &dlock.Options{TTL: time.Hour, StoreTimeout: 2 * time.Second})
				h := mustLock(t, t.Context(), c.Mutex("m"))
				s.answer(out)
				start := time.Now()
				wantError(t, h.Unlock(), "unlock", "m", dlock.ErrUnavailable)
				took := time.Since(start)
				assert.LessOrEqual(t, took, 2*time.Second)
				assert.Greater(t, took, 1500*time.Millisecond, "it tried again as long as it could")
				assert.Equal(t, dlock.ErrNotHeld, h.Err(), "over at once in any case")

				time.Sleep(30 * time.Minute)
				assert.Len(t, inspect(t, s, "m").Holders, 1)
				s.recover()
				time.Sleep(5 * time.Second)
				wantFree(t, s, "m")
			})
		})
	}
}

// One release whose reply was lost is repeated, and then not there: success.
func TestHoldUnlockRepeatedAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var lost losses
		h := mustLock(t, t.Context(), open(t, s, &dlock.Options{OnLost: lost.add}).Mutex("m"))
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			s.recover()
			return append([]error{errDown}, s.Store.Release(ctx, ref))[0]
		})
		require.NoError(t, h.Unlock())
		assert.EqualValues(t, 2, s.releases.Load())
		synctest.Wait()
		assert.Empty(t, lost.all())
	})
}

// Err goes by the clock: it does not rely on the watchdog having come round.
// Of many holds that run out at one moment, some are looked at before.
func TestHoldErrGoesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		s.cutRenewals(refuseConnection)
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for range 200 {
			m := c.Mutex("m")
			h, nested := mustLock(t, ctx, m), mustLock(t, ctx, m)
			time.Sleep(time.Second - claimMargin(time.Second) - 1)
			assert.NoError(t, h.Err())
			time.Sleep(time.Nanosecond)
			assert.Equal(t, dlock.ErrLost, h.Err())
			assert.True(t, closed(h.Done()), "whoever was told so finds Done closed")
			_, err := m.TryLockContext(ctx)
			assert.ErrorIs(t, err, dlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
			assert.ErrorIs(t, nested.Unlock(), dlock.ErrLost)
			synctest.Wait()
		}
	})
}

// claimMargin is the documented difference between a lease and a claim on it.
func claimMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Unlock and re-entry go by the clock as well.
func TestHoldUnlockAndReentryGoByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		s.cutRenewals(refuseConnection)
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for i := range 200 {
			h, nested := mustLock(t, ctx, c.Mutex("m")), mustLock(t, ctx, c.Mutex("m"))
			time.Sleep(time.Second - claimMargin(time.Second))
			if i%2 == 0 {
				_, err := c.Mutex("m").LockContext(ctx)
				assert.ErrorIs(t, err, dlock.ErrLost)
			}
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
			assert.ErrorIs(t, nested.Unlock(), dlock.ErrLost)
			synctest.Wait()
		}
	})
}

func TestHoldTokensGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, nil).RWMutex("m"), open(t, s.Peer(), nil).RWMutex("m")
		var last uint64
		for i := range 30 {
			rw := a
			if i%3 == 0 {
				rw = b
			}
			h, err := rw.LockContext(t.Context())
			if i%2 == 0 {
				require.NoError(t, h.Unlock())
				h, err = rw.RLockContext(t.Context())
			}
			require.NoError(t, err)
			assert.Greater(t, h.Token(), last)
			last = h.Token()
			require.NoError(t, h.Unlock())
		}
	})
}
