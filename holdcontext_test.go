package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
