package dlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TokenFrom returns the token of the innermost hold. Outside a hold, and for another owner, there
// is none.
func TestTokenFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := dlock.New(memory.New(), nil)
		require.NoError(t, err)
		defer c.Close()

		_, ok := dlock.TokenFrom(t.Context())
		assert.False(t, ok)
		_, ok = dlock.TokenFrom(dlock.WithOwner(t.Context(), dlock.NewOwner()))
		assert.False(t, ok)

		outer, err := c.Mutex("outer").LockContext(t.Context())
		require.NoError(t, err)
		ctx := outer.Context(t.Context())
		token, ok := dlock.TokenFrom(ctx)
		assert.True(t, ok)
		assert.Equal(t, outer.Token(), token)

		require.NoError(t, c.Mutex("inner").Do(ctx, func(ctx context.Context) error {
			inner, ok := dlock.TokenFrom(ctx)
			assert.True(t, ok)
			assert.Greater(t, inner, token)
			_, ok = dlock.TokenFrom(dlock.WithOwner(ctx, dlock.NewOwner()))
			assert.False(t, ok, "another owner has no hold here")
			owner, _ := dlock.OwnerFrom(ctx)
			same, ok := dlock.TokenFrom(dlock.WithOwner(ctx, owner))
			assert.True(t, ok, "the same owner, named once more")
			assert.Equal(t, inner, same)
			return nil
		}))
		require.NoError(t, outer.Unlock())
	})
}

// A reader's lock inside an upgrade shares the hold of the one outside, with its older token. The resource
// has seen the upgrade's.
func TestTokenForInsideAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := coretest.Open(t, memory.New(), nil).RWMutex("m")
		require.NoError(t, rw.RDo(t.Context(), func(ctx context.Context) error {
			return rw.Do(ctx, func(ctx context.Context) error {
				upgraded, ok := dlock.TokenFor(ctx, "m")
				assert.True(t, ok)
				return rw.RDo(ctx, func(ctx context.Context) error {
					token, ok := dlock.TokenFor(ctx, "m")
					assert.True(t, ok)
					assert.Equal(t, upgraded, token)
					token, ok = dlock.TokenFrom(ctx)
					assert.True(t, ok)
					assert.Equal(t, upgraded, token)
					return nil
				})
			})
		}))
	})
}

// A loss that several nested Dos meet is reported once. The loss of another lock is reported
// beside it.
func TestNestedDoReportsOneLossOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, err := dlock.New(s, nil)
		require.NoError(t, err)
		defer c.Close()
		a, b := c.Mutex("a"), c.Mutex("b")

		lose := func(ctx context.Context, name string) {
			_, err := s.Break(context.Background(), name)
			assert.NoError(t, err)
			<-ctx.Done()
		}
		err = a.Do(t.Context(), func(ctx context.Context) error {
			return a.Do(ctx, func(ctx context.Context) error {
				lose(ctx, "a")
				return nil
			})
		})
		assert.ErrorIs(t, err, dlock.ErrLost)
		assert.Equal(t, 1, strings.Count(err.Error(), "lost"), "%v", err)

		err = a.Do(t.Context(), func(outer context.Context) error {
			return b.Do(outer, func(inner context.Context) error {
				lose(inner, "b")
				lose(outer, "a")
				return nil
			})
		})
		assert.ErrorIs(t, err, dlock.ErrLost)
		assert.Contains(t, err.Error(), `"a"`)
		assert.Contains(t, err.Error(), `"b"`)
	})
}

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

		o := dlock.NewOwner()
		d := coretest.MustLock(t, outer, c.Mutex("d").As(o))
		inner := d.Context(outer)
		want(inner, "a", a.Token(), true)
		want(dlock.WithOwner(inner, o), "d", d.Token(), true)
		want(dlock.WithOwner(inner, o), "a", 0, false) // o has d under it, and not a
		require.NoError(t, d.Unlock())
		require.NoError(t, b.Unlock())
		require.NoError(t, a.Unlock())
		want(outer, "a", a.Token(), true) // the token stays after the end of the hold
	})
}
