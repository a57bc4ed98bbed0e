package lifecycle

import (
	"context"
	"encoding/hex"
	"math/bits"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cloned process must not draw the same ids as its twin. All 128 bits of an id come from
// crypto/rand, and each request has a new one.
func TestFault65IdsAreRandomAndDistinct(t *testing.T) {
	const n = 2000
	s := coretest.NewSpy(memory.New())
	seen := make(map[string]bool)
	note := func(id string) {
		require.Len(t, id, 32)
		assert.False(t, seen[id], "drawn twice: %s", id)
		seen[id] = true
	}
	s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		note(req.ID)
		note(req.Owner) // a private owner has its own id
		return s.Store.Acquire(ctx, req)
	})
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	for range n / 4 {
		require.NoError(t, coretest.MustLock(t, t.Context(), c.Mutex("m")).Unlock())
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

// The generator of random pauses may be weak. One file at most uses it, and that file makes no
// ids.
func TestFault65NoWeakGeneratorMakesIds(t *testing.T) {
	var weak []string
	for _, dir := range coretest.CorePackages(t) {
		for path, file := range coretest.Sources(t, dir) {
			imports := make(map[string]bool)
			for _, spec := range file.Imports {
				imports[strings.Trim(spec.Path.Value, `"`)] = true
			}
			if imports["math/rand"] || imports["math/rand/v2"] {
				weak = append(weak, path)
				assert.Equal(t, "backoff.go", filepath.Base(path))
				assert.False(t, imports["crypto/rand"] || imports["encoding/hex"], "%s makes ids", path)
			}
		}
	}
	assert.Len(t, weak, 1)
}

// A request keeps its id, so that repeating it is harmless, and no other request has it.
func TestFault65RepeatedRequestsKeepTheirID(t *testing.T) {
	s := coretest.NewSpy(memory.New())
	ids := make(map[string]int)
	s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		if ids[req.ID]++; ids[req.ID] < 3 {
			return store.Grant{}, coretest.ErrDown
		}
		return s.Store.Acquire(ctx, req)
	})
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, coretest.MustLock(t, t.Context(), c.Mutex("m")).Unlock())
	}
	require.NoError(t, c.Close())
	assert.Len(t, ids, 3)
}
