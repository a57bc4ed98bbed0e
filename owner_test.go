package dlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOwnerTextRoundTrip(t *testing.T) {
	o := dlock.NewOwner()
	assert.Regexp(t, "^[0-9a-f]{32}$", o.String())
	parsed, err := dlock.ParseOwner(o.String())
	require.NoError(t, err)
	assert.Equal(t, o, parsed)
	assert.NotEqual(t, o, dlock.NewOwner())
	assert.Contains(t, map[dlock.Owner]bool{parsed: true}, o, "comparable")
}

func TestParseOwnerRefusesEveryOtherText(t *testing.T) {
	const good = "0123456789abcdef0123456789abcdef"
	_, err := dlock.ParseOwner(good)
	require.NoError(t, err)
	for _, s := range []string{
		"", " ", good[1:], good + "0", good + "\n", " " + good[1:],
		"0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdeg",
		"00000000000000000000000000000000", "0x23456789abcdef0123456789abcdef",
		"01234567-89ab-cdef-0123-456789abcdef", "private:012345", "\x00" + good[1:],
	} {
		o, err := dlock.ParseOwner(s)
		coretest.WantError(t, err, "parse owner", "", dlock.ErrInvalidOwner)
		assert.Zero(t, o, s)
	}
}

func TestOwnerInContext(t *testing.T) {
	_, ok := dlock.OwnerFrom(t.Context())
	assert.False(t, ok)
	o := dlock.NewOwner()
	got, ok := dlock.OwnerFrom(dlock.WithOwner(t.Context(), o))
	assert.True(t, ok)
	assert.Equal(t, o, got)
}

func TestZeroOwnerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		rw := coretest.Open(t, s, nil).RWMutex("m")
		ctx := dlock.WithOwner(t.Context(), dlock.Owner{})
		_, err := rw.LockContext(ctx)
		coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidOwner)
		_, err = rw.TryRLockContext(ctx)
		coretest.WantError(t, err, "tryrlock", "m", dlock.ErrInvalidOwner)
		_, err = rw.As(dlock.Owner{}).RLockContext(t.Context())
		coretest.WantError(t, err, "rlock", "m", dlock.ErrInvalidOwner)
		coretest.WantError(t, rw.As(dlock.Owner{}).Do(t.Context(), nil), "do", "m", dlock.ErrInvalidOwner)
		assert.Zero(t, s.Calls())
	})
}

// An explicit owner can travel to another process, for instance in a header.
func TestExplicitOwnerReentersFromAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		here, there := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, dlock.WithOwner(t.Context(), dlock.NewOwner()), here.Mutex("m"))
		carried, ok := dlock.OwnerFrom(h.Context(t.Context()))
		require.True(t, ok)
		header := carried.String()

		o, err := dlock.ParseOwner(header)
		require.NoError(t, err)
		nested := coretest.MustLock(t, dlock.WithOwner(t.Context(), o), there.Mutex("m"))
		assert.Equal(t, h.Token(), nested.Token())
		assert.Equal(t, 1, nested.Count(), "counts this client's handles")
		require.NoError(t, h.Unlock())
		_, err = here.Mutex("m").TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrHeld, "still held over there")
		require.NoError(t, nested.Unlock())
		coretest.WantFree(t, s, "m")
	})
}

func TestPrivateOwnerStaysInItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		owners := make(map[string]bool) // as the store knows them
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			owners[req.Owner] = true
			return s.Store.Acquire(ctx, req)
		})
		here, there := coretest.Open(t, s, nil), coretest.Open(t, s.Store.(*memory.Store).Peer(), nil)
		h := coretest.MustLock(t, t.Context(), here.Mutex("m"))

		_, err := there.Mutex("m").TryLockContext(h.Context(t.Context()))
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		text := h.Owner().String()
		_, err = dlock.ParseOwner(text)
		assert.ErrorIs(t, err, dlock.ErrInvalidOwner, "the text of a private owner is no owner")

		// No text of it contains the id that the store knows.
		for known := range owners {
			explicit, err := dlock.ParseOwner(known)
			require.NoError(t, err)
			assert.NotEqual(t, explicit, h.Owner())
			assert.NotContains(t, fmt.Sprintf("%v %#v %x %q", h.Owner(), h.Owner(), h.Owner(), h.Owner()), known[:6])
		}
		other := coretest.MustLock(t, h.Context(t.Context()), here.Mutex("n"))
		assert.Equal(t, h.Owner(), other.Owner())
		assert.Len(t, owners, 2, "one id for each name")
		require.NoError(t, other.Unlock())
		require.NoError(t, h.Unlock())
	})
}

func TestOwnerIsShortWhereItIsLogged(t *testing.T) {
	o := dlock.NewOwner()
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "owner", o)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "owner", o)
	text := log.String() + fmt.Sprintf("%#v", o)
	assert.Contains(t, text, o.String()[:6])
	assert.NotContains(t, text, o.String()[:7])
}
