package lifecycle

import (
	"runtime"
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
