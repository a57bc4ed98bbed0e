package dlock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHoldContextCarriesTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustLock(t, t.Context(), open(t, memory.New(), nil).Mutex("m"))
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
		c := open(t, memory.New(), nil)
		want := func(ctx context.Context, token uint64, ok bool) {
			t.Helper()
			got, carries := dlock.TokenFrom(ctx)
			assert.Equal(t, ok, carries)
			assert.Equal(t, token, got)
		}
		want(t.Context(), 0, false)
		want(dlock.WithOwner(t.Context(), dlock.NewOwner()), 0, false)
		a := mustLock(t, t.Context(), c.Mutex("a"))
		outer := a.Context(t.Context())
		want(outer, a.Token(), true)
		b := mustRLock(t, outer, c.RWMutex("b"))
		require.NotEqual(t, a.Token(), b.Token())
		want(b.Context(outer), b.Token(), true)
		require.NoError(t, c.Mutex("a").Do(outer, func(ctx context.Context) error {
			want(ctx, a.Token(), true)
			want(dlock.WithOwner(ctx, dlock.NewOwner()), 0, false) // another owner is under no hold
			return nil
		}))
		require.NoError(t, b.Unlock())
		require.NoError(t, a.Unlock())
		want(outer, a.Token(), true) // it says nothing of whether it lasts
	})
}

func TestHoldContextEndsWithItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithMaxHold(time.Minute)).As(dlock.NewOwner())
		first, second := mustLock(t, t.Context(), m), mustLock(t, t.Context(), m)
		one, two, early := first.Context(t.Context()), first.Context(t.Context()), second.Context(t.Context())
		require.NoError(t, second.Unlock())
		assert.ErrorIs(t, early.Err(), context.Canceled)
		assert.Equal(t, dlock.ErrNotHeld, context.Cause(early))
		assert.NoError(t, one.Err())

		<-one.Done()
		<-two.Done()
		for _, ctx := range []context.Context{one, two, first.Context(t.Context())} {
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			assert.Equal(t, dlock.ErrLost, context.Cause(ctx))
		}
		assert.Equal(t, dlock.ErrNotHeld, context.Cause(second.Context(t.Context())), "of one that ended before")
		assert.ErrorIs(t, first.Unlock(), dlock.ErrLost)
	})
}

func TestHoldContextEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustLock(t, t.Context(), open(t, memory.New(), nil).Mutex("m"))
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

// The clock decides for Context too: what has run out gives no context that lives.
func TestHoldContextOfALeaseThatRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{TTL: time.Second})
		for range 100 {
			h := mustLock(t, t.Context(), c.Mutex("m", dlock.WithoutRenewal()))
			time.Sleep(time.Second - claimMargin(time.Second))
			assert.Equal(t, dlock.ErrLost, context.Cause(h.Context(t.Context())))
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
	})
}

// A hold that is kept for long may give out any number of contexts.
func TestHoldContextsDoNotPileUp(t *testing.T) {
	c, err := dlock.New(memory.New(), nil)
	require.NoError(t, err)
	h := mustLock(t, t.Context(), c.Mutex("m"))
	use := func(n int) {
		for range n {
			parent, cancel := context.WithCancel(t.Context())
			h.Context(parent)
			cancel()
		}
	}
	use(1000)
	before := heap()
	use(manyContexts)
	assert.Less(t, heap(), before+4<<20, "bytes in use after %d contexts", manyContexts)
	require.NoError(t, h.Unlock())
	require.NoError(t, c.Close())
}

// heap returns how much of it is in use, once what ends on goroutines of its own has.
func heap() int64 {
	var m runtime.MemStats
	least := int64(1) << 62
	for range 20 {
		runtime.Gosched()
		runtime.GC()
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}
