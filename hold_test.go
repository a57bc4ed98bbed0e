package dlock_test

import (
	"context"
	"sync"
	"sync/atomic"
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

func TestHoldUnlockedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		done := h.Done()
		assert.NoError(t, h.Err())
		assert.False(t, coretest.Closed(done))
		require.NoError(t, h.Unlock())
		assert.True(t, coretest.Closed(done))
		assert.True(t, coretest.Closed(h.Done()), "also when Done is first called after the Unlock")
		assert.Equal(t, dlock.ErrNotHeld, h.Err())

		next := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		calls := s.Calls()
		coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		assert.Equal(t, calls, s.Calls())
		assert.NoError(t, next.Err())
		require.NoError(t, next.Unlock())
	})
}

func TestHoldUnlockedTwiceNeverEatsANestedHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := coretest.Open(t, s, nil).Mutex("m").As(dlock.NewOwner())
		first := coretest.MustLock(t, t.Context(), m)
		second := coretest.MustLock(t, t.Context(), m)
		require.NoError(t, first.Unlock())
		for range 3 {
			coretest.WantError(t, first.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		}
		assert.Equal(t, dlock.ErrNotHeld, first.Err())
		assert.True(t, coretest.Closed(first.Done()))
		assert.False(t, coretest.Closed(second.Done()))
		assert.NoError(t, second.Err())
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, second.Unlock())
	})
}

func TestHoldUnlockedByManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
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
		assert.EqualValues(t, 1, s.Releases.Load())
	})
}

// A hold ends before the store can grant the lock to another owner.
func TestHoldIsOverBeforeTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		done, ctx := h.Done(), h.Context(t.Context())
		s.OnRelease(func(c context.Context, ref store.Ref) error {
			assert.True(t, coretest.Closed(done))
			assert.Equal(t, dlock.ErrNotHeld, h.Err())
			assert.Equal(t, dlock.ErrNotHeld, context.Cause(ctx))
			return s.Store.Release(c, ref)
		})
		require.NoError(t, h.Unlock())
		assert.EqualValues(t, 1, s.Releases.Load())
	})
}

func TestHoldUnlockReturnsWhenTheStoreHasConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			time.Sleep(time.Second)
			return s.Store.Release(ctx, ref)
		})
		start := time.Now()
		require.NoError(t, h.Unlock())
		assert.Equal(t, time.Second, time.Since(start))
		assert.True(t, c.Mutex("m").TryLock())
		s.Recover()
	})
}

func TestHoldTokensGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := coretest.Open(t, s, nil).RWMutex("m"), coretest.Open(t, s.Peer(), nil).RWMutex("m")
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

func TestHoldContextCarriesTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, memory.New(), nil).Mutex("m"))
		type key struct{}
		ctx := h.Context(context.WithValue(dlock.WithOwner(t.Context(), dlock.NewOwner()), key{}, "kept"))
		o, ok := dlock.OwnerFrom(ctx)
		assert.True(t, ok)
		assert.Equal(t, h.Owner(), o)
		assert.Equal(t, "kept", ctx.Value(key{}))
		require.NoError(t, h.Unlock())
	})
}

func TestTokenFromIsThatOfTheInnermostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		want := func(ctx context.Context, token uint64, ok bool) {
			t.Helper()
			got, carries := dlock.TokenFrom(ctx)
			assert.Equal(t, ok, carries)
			assert.Equal(t, token, got)
		}
		want(t.Context(), 0, false)
		want(dlock.WithOwner(t.Context(), dlock.NewOwner()), 0, false)
		a := coretest.MustLock(t, t.Context(), c.Mutex("a"))
		outer := a.Context(t.Context())
		want(outer, a.Token(), true)
		b := coretest.MustRLock(t, outer, c.RWMutex("b"))
		require.NotEqual(t, a.Token(), b.Token())
		want(b.Context(outer), b.Token(), true)
		require.NoError(t, c.Mutex("a").Do(outer, func(ctx context.Context) error {
			want(ctx, a.Token(), true)
			want(dlock.WithOwner(ctx, dlock.NewOwner()), 0, false) // another owner has no hold here
			return nil
		}))
		require.NoError(t, b.Unlock())
		require.NoError(t, a.Unlock())
		want(outer, a.Token(), true) // the token stays after the end of the hold
	})
}

func TestHoldContextEndsWithItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithMaxHold(time.Minute)).As(dlock.NewOwner())
		first, second := coretest.MustLock(t, t.Context(), m), coretest.MustLock(t, t.Context(), m)
		one, two, early := first.Context(t.Context()), first.Context(t.Context()), second.Context(t.Context())
		require.NoError(t, second.Unlock())
		assert.ErrorIs(t, early.Err(), context.Canceled)
		assert.Equal(t, dlock.ErrNotHeld, context.Cause(early))
		assert.NoError(t, one.Err())

		<-one.Done()
		<-two.Done()
		for _, ctx := range []context.Context{one, two, first.Context(t.Context())} {
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			assert.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
		}
		assert.Equal(t, dlock.ErrNotHeld, context.Cause(second.Context(t.Context())), "a context made after the end")
		assert.ErrorIs(t, first.Unlock(), dlock.ErrLost)
	})
}

func TestHoldContextEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, memory.New(), nil).Mutex("m"))
		parent, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx := h.Context(parent)
		<-ctx.Done()
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		assert.NoError(t, h.Err())
		assert.Error(t, h.Context(parent).Err(), "at once if it has ended")
		require.NoError(t, h.Unlock())
	})
}
