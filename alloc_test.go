package dlock_test

import (
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Re-entry costs its handle: one allocation, and no call of the store.
func TestReentryAllocatesItsHandleOnly(t *testing.T) {
	// So many that what the client makes in the background, once, is less than
	// one for each.
	const runs = 20_000
	s := newSpy(memory.New())
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	rw := c.RWMutex("m")
	for name, f := range map[string]locker{"write": rw, "mutex": c.Mutex("m")} {
		h := mustLock(t, t.Context(), f)
		ctx := h.Context(t.Context())
		calls := s.calls()
		got := testing.AllocsPerRun(runs, func() {
			nested, err := f.LockContext(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := nested.Unlock(); err != nil {
				t.Fatal(err)
			}
		})
		assert.EqualValues(t, 1, got, name)
		assert.Equal(t, calls, s.calls(), name)
		require.NoError(t, h.Unlock())
	}
	h := mustRLock(t, t.Context(), rw)
	ctx := h.Context(t.Context())
	assert.EqualValues(t, 1, testing.AllocsPerRun(runs, func() {
		nested, err := rw.RLockContext(ctx)
		if err != nil || nested.Unlock() != nil {
			t.Fatal(err)
		}
	}), "read")
	require.NoError(t, h.Unlock())
	require.NoError(t, c.Close())
}
