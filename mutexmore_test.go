package dlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// panicText returns the text of the value that f panics with. It calls f on its own goroutine.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	func() {
		defer func() { text = fmt.Sprint(recover()) }()
		f()
	}()
	return text
}

// Lock and Unlock may go through two As values of one owner, in both modes.
func TestAsValuesOfOneOwnerShareTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, o := coretest.Open(t, s, nil), dlock.NewOwner()
		m, rw := c.Mutex("m"), c.RWMutex("rw")
		m.As(o).Lock()
		m.As(o).Lock()
		require.NotPanics(t, m.As(o).Unlock)
		assert.False(t, c.Mutex("m").TryLock(), "one of two locks is left")
		coretest.WantPanic(t, m.As(dlock.NewOwner()).Unlock, "unlock", dlock.ErrNotHeld)
		coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		require.NotPanics(t, m.As(o).Unlock)
		coretest.WantFree(t, s, "m")
		coretest.WantPanic(t, m.As(o).Unlock, "unlock", dlock.ErrNotHeld)

		rw.As(o).RLock()
		require.NotPanics(t, rw.As(o).RUnlock)
		rw.As(o).Lock()
		require.NotPanics(t, rw.As(o).Unlock)
		coretest.WantFree(t, s, "rw")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The zero Mutex and the zero RWMutex panic with a sentence that says how to make one.
func TestZeroMutexSaysHowToMakeOne(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	var m dlock.Mutex
	for name, call := range map[string]func(){
		"Lock": m.Lock, "Unlock": m.Unlock, "TryLock": func() { m.TryLock() },
		"LockContext":    func() { _, _ = m.LockContext(t.Context()) },
		"TryLockContext": func() { _, _ = m.TryLockContext(t.Context()) },
		"Do":             func() { _ = m.Do(t.Context(), nothing) },
	} {
		assert.Contains(t, strings.ToLower(panicText(t, call)), "client.mutex", name)
	}
	var rw dlock.RWMutex
	for name, call := range map[string]func(){
		"Lock": rw.Lock, "Unlock": rw.Unlock, "RLock": rw.RLock, "RUnlock": rw.RUnlock, "TryRLock": func() { rw.TryRLock() },
		"RLockContext": func() { _, _ = rw.RLockContext(t.Context()) },
		"RDo":          func() { _ = rw.RDo(t.Context(), nothing) },
	} {
		assert.Contains(t, strings.ToLower(panicText(t, call)), "client.rwmutex", name)
	}
}

// Unlock on another value than the one that locked says that Unlock belongs to that value.
func TestUnlockOnAnotherValueSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		m := c.Mutex("m")
		m.Lock()
		text := panicText(t, c.Mutex("m").Unlock)
		assert.Contains(t, text, `unlock "m"`)
		assert.Contains(t, text, "value")
		m.Unlock()
	})
}
