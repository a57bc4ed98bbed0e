package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TokenFor returns the token of the hold on that name, however deep the locks are nested.
func TestTokenForFindsTheHoldOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		want := func(ctx context.Context, name string, token uint64, ok bool) {
			t.Helper()
			got, found := dlock.TokenFor(ctx, name)
			assert.Equal(t, ok, found, name)
			assert.Equal(t, token, got, name)
		}
		want(t.Context(), "a", 0, false)
		want(dlock.WithOwner(t.Context(), dlock.NewOwner()), "a", 0, false)
		a := coretest.MustLock(t, t.Context(), c.Mutex("a"))
		outer := a.Context(t.Context())
		b := coretest.MustRLock(t, outer, c.RWMutex("b"))
		require.NoError(t, c.Mutex("c").Do(b.Context(outer), func(ctx context.Context) error {
			token, ok := dlock.TokenFrom(ctx)
			require.True(t, ok)
			want(ctx, "c", token, true)
			want(ctx, "b", b.Token(), true)
			want(ctx, "a", a.Token(), true)
			want(ctx, "d", 0, false)
			want(dlock.WithOwner(ctx, dlock.NewOwner()), "a", 0, false) // another owner has no hold here
			return nil
		}))
		want(outer, "b", 0, false)
		require.NoError(t, b.Unlock())
		require.NoError(t, a.Unlock())
		want(outer, "a", a.Token(), true) // the token stays after the end of the hold
	})
}
