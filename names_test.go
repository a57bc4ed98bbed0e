package dlock_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 83: names that are no longer used cost nothing, however many they were,
// and none that is held is ever forgotten.
func TestFault83ManyNamesUsedOnce(t *testing.T) {
	s := memory.New()
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	held := mustLock(t, t.Context(), c.Mutex("held"))
	nested := dlock.WithOwner(t.Context(), held.Owner())
	use := func(from, n int) {
		var wg sync.WaitGroup
		for g := range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for i := from + g; i < from+n; i += runtime.GOMAXPROCS(0) {
					h, err := c.Mutex(fmt.Sprintf("name/%d", i)).LockContext(t.Context())
					if assert.NoError(t, err) {
						assert.NoError(t, h.Unlock())
					}
				}
			})
		}
		wg.Wait()
	}
	use(0, 5000)
	before, goroutines := heap(), runtime.NumGoroutine()
	use(5000, manyNames)
	assert.Less(t, heap(), before+2<<20, "bytes in use after %d names", manyNames)
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
	assert.Equal(t, 1, dlock.NamesInUse(c))

	assert.False(t, c.Mutex("held").TryLock())
	again := mustLock(t, nested, c.Mutex("held"))
	assert.Equal(t, held.Token(), again.Token())
	require.NoError(t, again.Unlock())
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock())
	assert.Zero(t, dlock.NamesInUse(c))
	require.NoError(t, c.Close())
}

// Fault 85: names are bytes, from 1 to 1,024 of them, and distinct ones are
// distinct locks.
func TestFault85Names(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		good := []string{
			"m", "\x00", "\n", " ", "{", "}", "{}", "a{b}c", "{a}{b}", "\xff\xfe", "é", "e\u0301", "m:q", "m/", "/m", "../m", "*", "M",
			"private:012345", strings.Repeat("x", 1023), strings.Repeat("x", 1024), strings.Repeat("\x00", 1024), strings.Repeat("é", 512),
		}
		var holds []*dlock.Hold
		for _, name := range good {
			h, err := c.Mutex(name).TryLockContext(t.Context())
			require.NoError(t, err, "%q", name)
			assert.Equal(t, name, h.Name())
			assert.Equal(t, name, c.RWMutex(name).Name())
			assert.Len(t, inspect(t, s, name).Holders, 1)
			holds = append(holds, h)
		}
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
		calls := s.calls()
		for _, name := range []string{"", strings.Repeat("x", 1025), strings.Repeat("x", 1<<20), strings.Repeat("é", 513)} {
			_, err := c.Mutex(name).LockContext(t.Context())
			wantError(t, err, "lock", name, dlock.ErrInvalidName)
			assert.Less(t, len(err.Error()), 300, "the name is not repeated whole")
			_, err = c.RWMutex(name).TryRLockContext(t.Context())
			wantError(t, err, "tryrlock", name, dlock.ErrInvalidName)
		}
		assert.Equal(t, calls, s.calls())
	})
}
