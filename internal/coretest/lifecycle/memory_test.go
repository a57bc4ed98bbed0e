package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names that are no longer used cost nothing, however many they were. A name that is held is never
// forgotten.
func TestFault83ManyNamesUsedOnce(t *testing.T) {
	s := memory.New()
	c, err := dlock.New(s, nil)
	require.NoError(t, err)
	held := coretest.MustLock(t, t.Context(), c.Mutex("held"))
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
	before, goroutines := coretest.Heap(), runtime.NumGoroutine()
	use(5000, coretest.ManyNames)
	assert.Less(t, coretest.Heap(), before+2<<20, "bytes in use after %d names", coretest.ManyNames)
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+3, "the wheel of the watchdog may have begun")
	assert.Equal(t, 1, c.Stats().Names)

	assert.False(t, c.Mutex("held").TryLock())
	again := coretest.MustLock(t, nested, c.Mutex("held"))
	assert.Equal(t, held.Token(), again.Token())
	require.NoError(t, again.Unlock())
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock())
	assert.Zero(t, coretest.Gauges(c))
	require.NoError(t, c.Close())
}

// An owner that alternates upgrade and downgrade of one lock keeps no former hold in memory.
func TestUpgradesAndDowngradesDoNotPileUp(t *testing.T) {
	c, err := dlock.New(memory.New(), nil)
	require.NoError(t, err)
	defer c.Close()
	rw := c.RWMutex("m")
	turn := func(first *dlock.Hold, next func(context.Context) (*dlock.Hold, error)) *dlock.Hold {
		h, err := next(dlock.WithOwner(t.Context(), first.Owner()))
		require.NoError(t, err)
		require.NoError(t, first.Unlock())
		return h
	}
	h, err := rw.RLockContext(t.Context())
	require.NoError(t, err)
	var former []weak.Pointer[dlock.Hold]
	for range 5 {
		h = turn(h, rw.LockContext)
		h = turn(h, rw.RLockContext)
		former = append(former, weak.Make(h))
	}
	kept := func() (n int) {
		runtime.GC()
		for _, p := range former {
			if p.Value() != nil {
				n++
			}
		}
		return n
	}
	assert.LessOrEqual(t, kept(), 2, "holds in memory: that one, and perhaps the one before")
	require.NoError(t, h.Unlock())
}

// A hold that is kept for long may give out any number of contexts without using more memory.
func TestHoldContextsDoNotPileUp(t *testing.T) {
	c, err := dlock.New(memory.New(), nil)
	require.NoError(t, err)
	h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
	use := func(n int) {
		for range n {
			parent, cancel := context.WithCancel(t.Context())
			h.Context(parent)
			cancel()
		}
	}
	use(1000)
	before := coretest.Heap()
	use(coretest.ManyContexts)
	assert.Less(t, coretest.Heap(), before+4<<20, "bytes in use after %d contexts", coretest.ManyContexts)
	require.NoError(t, h.Unlock())
	require.NoError(t, c.Close())
}

// A hold that is kept for long does not keep the context that it was taken with.
func TestHoldKeepsNoContext(t *testing.T) {
	c, err := dlock.New(memory.New(), nil)
	require.NoError(t, err)
	defer c.Close()
	type key struct{}
	value := new([1 << 20]byte)
	kept := weak.Make(value)
	h := coretest.MustLock(t, context.WithValue(t.Context(), key{}, value), c.Mutex("m"))
	value = nil
	assert.Eventually(t, func() bool {
		runtime.GC()
		return kept.Value() == nil
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, h.Unlock())
}
