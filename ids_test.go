package dlock_test

import (
	"context"
	"encoding/hex"
	"math/bits"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 65: a cloned process must not draw the same ids as its twin. They come
// from crypto/rand, all 128 bits of them, a new one for each acquisition.
func TestFault65IdsAreRandomAndDistinct(t *testing.T) {
	const n = 2000
	s := newSpy(memory.New())
	seen := make(map[string]bool)
	note := func(id string) {
		require.Len(t, id, 32)
		assert.False(t, seen[id], "drawn twice: %s", id)
		seen[id] = true
	}
	s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		note(req.ID)
		note(req.Owner) // private owners have ids of their own
		return s.Store.Acquire(ctx, req)
	})
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	for range n / 4 {
		require.NoError(t, mustLock(t, t.Context(), c.Mutex("m")).Unlock())
		note(dlock.NewOwner().String())
	}
	require.NoError(t, c.Close())

	// Each bit is set in about a half. Eight standard deviations are allowed.
	var ones [128]int
	for id := range seen {
		raw, err := hex.DecodeString(id)
		require.NoError(t, err)
		for i, b := range raw {
			for ; b != 0; b &= b - 1 {
				ones[8*i+bits.TrailingZeros8(b)]++
			}
		}
	}
	for bit, k := range ones {
		assert.InDelta(t, len(seen)/2, k, 160, "bit %d of %d ids", bit, len(seen))
	}
}

// The generator of pauses may be weak. It is not to come near the ids.
func TestFault65NoWeakGeneratorMakesIds(t *testing.T) {
	for path, file := range sources(t, ".") {
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, "math/rand") {
				assert.Equal(t, "backoff.go", path)
			}
		}
	}
}

// An attempt keeps its id, so that repeating it is harmless, and no other has it.
func TestFault65RepeatedRequestsKeepTheirID(t *testing.T) {
	s := newSpy(memory.New())
	ids := make(map[string]int)
	s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		if ids[req.ID]++; ids[req.ID] < 3 {
			return store.Grant{}, errDown
		}
		return s.Store.Acquire(ctx, req)
	})
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, mustLock(t, t.Context(), c.Mutex("m")).Unlock())
	}
	require.NoError(t, c.Close())
	assert.Len(t, ids, 3)
}
