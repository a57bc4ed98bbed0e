package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
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

// alive counts the holds that are in memory.
func alive(holds []weak.Pointer[dlock.Hold]) (n int) {
	runtime.GC()
	for _, p := range holds {
		if p.Value() != nil {
			n++
		}
	}
	return n
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
	assert.LessOrEqual(t, alive(former), 2, "holds in memory: that one, and perhaps the one before")
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

// A program keeps the first of an owner's nested holds after its end. It does not keep those after it in memory.
func TestEndedHoldKeepsNoOther(t *testing.T) {
	m := coretest.Open(t, memory.New(), nil).Mutex("m").As(dlock.NewOwner())
	first := coretest.MustLock(t, t.Context(), m)
	h := first
	var former []weak.Pointer[dlock.Hold]
	for range 5 {
		next := coretest.MustLock(t, t.Context(), m)
		require.NoError(t, h.Unlock())
		h = next
		former = append(former, weak.Make(h))
	}
	assert.LessOrEqual(t, alive(former), 2, "holds in memory: that one, and perhaps the one before")
	require.NoError(t, h.Unlock())
	runtime.KeepAlive(first)
}

// Two calls of an owner wait for a lock and get it. The hold that is unlocked is not kept in memory by the
// other one.
func TestOwnerKeepsNoCallThatHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		held := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		m := c.Mutex("m").As(dlock.NewOwner())
		var got [2]chan *dlock.Hold
		for i := range got {
			got[i] = make(chan *dlock.Hold, 1)
			go func() { got[i] <- coretest.MustLock(t, t.Context(), m) }()
			synctest.Wait()
		}
		require.NoError(t, held.Unlock())
		first, second := <-got[0], <-got[1]
		require.NoError(t, second.Unlock())
		former := []weak.Pointer[dlock.Hold]{weak.Make(second)}
		time.Sleep(time.Minute) // the runtime keeps a stopped timer until its time
		assert.Zero(t, alive(former))
		require.NoError(t, first.Unlock())
	})
}

// What has told a loss does not keep the hold in memory.
func TestLossKeepsNoHold(t *testing.T) {
	told := make(chan struct{})
	c := coretest.Open(t, memory.New(), &dlock.Options{OnLost: func(*dlock.Hold) { told <- struct{}{} }})
	lose := func() weak.Pointer[dlock.Hold] {
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		_, err := c.Break(t.Context(), "m")
		require.NoError(t, err)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		<-told
		return weak.Make(h)
	}
	former := []weak.Pointer[dlock.Hold]{lose()}
	assert.Eventually(t, func() bool { return alive(former) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// A hold that is unlocked is not kept in memory until the moment of its warning.
func TestWarningKeepsNoHold(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the runtime forgets stopped timers when one processor has many
	m := coretest.Open(t, memory.New(), nil).Mutex("m", dlock.WithGrace(time.Second))
	former := make([]weak.Pointer[dlock.Hold], 100)
	for i := range former {
		h := coretest.MustLock(t, t.Context(), m)
		former[i] = weak.Make(h)
		require.NoError(t, h.Unlock())
	}
	assert.Eventually(t, func() bool { return alive(former) < len(former)/2 }, 10*time.Second, 10*time.Millisecond)
}
