package leases

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the Locker forms do about a hold that was lost.

func TestUnlockOfALostLockDoesNotPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var lost coretest.Losses
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{
			TTL:    time.Second,
			OnLost: lost.Add,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		m := c.Mutex("m", dlock.WithoutRenewal())
		m.Lock()
		time.Sleep(2 * time.Second)
		m.Unlock()
		coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		synctest.Wait()

		require.Len(t, lost.All(), 1)
		assert.ErrorIs(t, lost.All()[0].Err(), dlock.ErrLost)
		assert.True(t, coretest.Closed(lost.All()[0].Done()))
		assert.Contains(t, log.String(), "hold lost")
		require.True(t, m.TryLock(), "the loss has no effect on the next lock")
		m.Unlock()
	})
}

// The first holder's lock is lost. Another goroutine locks through the same value, and then the
// first one calls Unlock.
func TestUnlockOfALostLockNeverReleasesAnothersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithMaxHold(3*time.Second))
		m.Lock()
		time.Sleep(4 * time.Second)
		m.Lock() // by another goroutine
		held := coretest.Inspect(t, s, "m").Holders
		require.Len(t, held, 1)

		m.Unlock() // unlocks the first, lost hold
		left := coretest.Inspect(t, s, "m").Holders
		require.Len(t, left, 1)
		assert.Equal(t, held[0].ID, left[0].ID)
		assert.False(t, c.Mutex("m").TryLock())

		m.Unlock()
		coretest.WantFree(t, s, "m")
	})
}

// The same when the watchdog may not have found the loss yet.
func TestUnlockLooksAtTheClockForLostLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m")
		m.Lock()
		s.CutRenewals(coretest.Refuse)
		time.Sleep(time.Second) // from the grant: past the claim, at the end of the lease
		m.Lock()
		s.Recover()
		m.Unlock()
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		m.Unlock()
		coretest.WantFree(t, s, "m")
	})
}

func TestLockNestedInALostHoldPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithoutRenewal()).As(dlock.NewOwner())
		m.Lock()
		m.Lock()
		time.Sleep(time.Second)
		coretest.WantPanic(t, m.Lock, "lock", dlock.ErrLost)
		assert.False(t, m.TryLock(), "no panic, because a later try can succeed")
		m.Unlock()
		coretest.WantPanic(t, m.Lock, "lock", dlock.ErrLost)
		m.Unlock()
		m.Lock()
		m.Unlock()
	})
}

func TestOnLostIsCalledOncePerGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost coretest.Losses
		block := make(chan struct{})
		c := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second, OnLost: func(h *dlock.Hold) {
			assert.True(t, coretest.Closed(h.Done()))
			lost.Add(h)
			<-block // OnLost may block
		}})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		m := c.Mutex("m", dlock.WithMaxHold(5*time.Second))
		first := coretest.MustLock(t, ctx, m)
		second := coretest.MustLock(t, ctx, m)
		third := coretest.MustLock(t, ctx, m)
		require.NoError(t, first.Unlock())

		time.Sleep(4999 * time.Millisecond)
		assert.NoError(t, second.Err())
		assert.Empty(t, lost.All())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, lost.All(), 1)
		assert.Same(t, second, lost.All()[0], "the oldest of its handles that is not unlocked yet")

		for _, h := range []*dlock.Hold{second, third} {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
		}
		synctest.Wait()
		assert.Len(t, lost.All(), 1)
		close(block)
	})
}

// OnLost also reports a hold that only its release found to be gone.
func TestOnLostOfAHoldThatWasGoneWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost coretest.Losses
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{OnLost: lost.Add})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		broken, err := s.Break(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, 1, broken)
		coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
		synctest.Wait()
		assert.Equal(t, []*dlock.Hold{h}, lost.All())
		coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrNotHeld)
	})
}

// An owner that has unlocked what it lost goes on with what it still holds.
func TestOwnerGoesOnAfterItHasUnlockedALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		o := dlock.NewOwner()
		rw := c.RWMutex("m").As(o)
		write, err := c.RWMutex("m", dlock.WithTTL(time.Second), dlock.WithoutRenewal()).As(o).LockContext(t.Context())
		require.NoError(t, err)
		read := coretest.MustRLock(t, t.Context(), rw)
		time.Sleep(time.Second)
		require.ErrorIs(t, write.Err(), dlock.ErrLost)
		require.NoError(t, read.Err())
		_, err = rw.RLockContext(t.Context())
		coretest.WantError(t, err, "rlock", "m", dlock.ErrLost)

		require.ErrorIs(t, write.Unlock(), dlock.ErrLost)
		again := coretest.MustRLock(t, t.Context(), rw)
		assert.Equal(t, read.Token(), again.Token())
		require.NoError(t, again.Unlock())
		require.NoError(t, read.Unlock())
		coretest.WantFree(t, s, "m")
	})
}
