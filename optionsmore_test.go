package dlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A nil LockOption is an error of the calls that use the lock.
func TestNilLockOptionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		var m *dlock.Mutex
		var rw *dlock.RWMutex
		require.NotPanics(t, func() { m, rw = c.Mutex("m", nil), c.RWMutex("m", dlock.WithTTL(coretest.TTL), nil) })
		_, err := m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidOption)
		_, err = rw.TryRLockContext(t.Context())
		coretest.WantError(t, err, "tryrlock", "m", dlock.ErrInvalidOption)
		coretest.WantPanic(t, m.Lock, "lock", dlock.ErrInvalidOption)
		coretest.WantPanic(t, func() { m.TryLock() }, "trylock", dlock.ErrInvalidOption)
		assert.Zero(t, s.Calls())
	})
}

// NoLocalHandoffs turns local hand-over and the sharing of readers off.
func TestNoLocalHandoffs(t *testing.T) {
	assert.EqualValues(t, -1, dlock.NoLocalHandoffs)
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := coretest.Open(t, s, &dlock.Options{LocalHandoffs: dlock.NoLocalHandoffs}).RWMutex("m")
		first, second := coretest.MustRLock(t, t.Context(), rw), coretest.MustRLock(t, t.Context(), rw)
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 2)
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
	})
}
