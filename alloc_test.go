package dlock_test

import (
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Re-entry allocates its handle and nothing else, and makes no store call.
func TestReentryAllocatesItsHandleOnly(t *testing.T) {
	// So many runs that a few allocations in the background do not count.
	const runs = 20_000
	s := coretest.NewSpy(memory.New())
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	rw := c.RWMutex("m")
	for name, f := range map[string]coretest.Locker{"write": rw, "mutex": c.Mutex("m")} {
		h := coretest.MustLock(t, t.Context(), f)
		ctx := h.Context(t.Context())
		calls := s.Calls()
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
		assert.Equal(t, calls, s.Calls(), name)
		require.NoError(t, h.Unlock())
	}
	h := coretest.MustRLock(t, t.Context(), rw)
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
