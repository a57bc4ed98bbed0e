package dlock_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the Locker forms do about a hold that was lost.

func TestUnlockOfALostLockDoesNotPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var lost losses
		s := memory.New()
		c := open(t, s, &dlock.Options{
			TTL:    time.Second,
			OnLost: lost.add,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		m := c.Mutex("m", dlock.WithoutRenewal())
		m.Lock()
		time.Sleep(2 * time.Second)
		m.Unlock()
		wantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		synctest.Wait()

		require.Len(t, lost.all(), 1)
		assert.ErrorIs(t, lost.all()[0].Err(), dlock.ErrLost)
		assert.True(t, closed(lost.all()[0].Done()))
		assert.Contains(t, log.String(), "hold lost")
		require.True(t, m.TryLock(), "nothing of the loss stays behind")
		m.Unlock()
	})
}

// The first holder's lock is lost, a second goroutine takes the lock through
// the same value, and only then does the first call Unlock.
func TestUnlockOfALostLockNeverReleasesAnothersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithMaxHold(3*time.Second))
		m.Lock()
		time.Sleep(4 * time.Second)
		m.Lock() // by somebody else
		held := inspect(t, s, "m").Holders
		require.Len(t, held, 1)

		m.Unlock() // of the first, lost one
		left := inspect(t, s, "m").Holders
		require.Len(t, left, 1)
		assert.Equal(t, held[0].ID, left[0].ID)
		assert.False(t, c.Mutex("m").TryLock())

		m.Unlock()
		wantFree(t, s, "m")
	})
}

// As above with the clock alone: the watchdog may not have declared the loss.
func TestUnlockLooksAtTheClockForLostLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m")
		m.Lock()
		s.cutRenewals(refuseConnection)
		time.Sleep(time.Second) // from the grant: past the claim, at the end of the lease
		m.Lock()
		s.recover()
		m.Unlock()
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		m.Unlock()
		wantFree(t, s, "m")
	})
}

func TestLockNestedInALostHoldPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithoutRenewal()).As(dlock.NewOwner())
		m.Lock()
		m.Lock()
		time.Sleep(time.Second)
		wantPanic(t, m.Lock, "lock", dlock.ErrLost)
		assert.False(t, m.TryLock(), "not a panic: a later try can succeed")
		m.Unlock()
		wantPanic(t, m.Lock, "lock", dlock.ErrLost)
		m.Unlock()
		m.Lock()
		m.Unlock()
	})
}

func TestOnLostIsCalledOncePerGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost losses
		block := make(chan struct{})
		c := open(t, memory.New(), &dlock.Options{TTL: time.Second, OnLost: func(h *dlock.Hold) {
			assert.True(t, closed(h.Done()))
			lost.add(h)
			<-block // it may block
		}})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		m := c.Mutex("m", dlock.WithMaxHold(5*time.Second))
		first := mustLock(t, ctx, m)
		second := mustLock(t, ctx, m)
		third := mustLock(t, ctx, m)
		require.NoError(t, first.Unlock())

		time.Sleep(4999 * time.Millisecond)
		assert.NoError(t, second.Err())
		assert.Empty(t, lost.all())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, lost.all(), 1)
		assert.Same(t, second, lost.all()[0], "the oldest of its handles that is not unlocked yet")

		for _, h := range []*dlock.Hold{second, third} {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			wantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
		}
		synctest.Wait()
		assert.Len(t, lost.all(), 1)
		close(block)
	})
}

// A hold that the store had lost, found out only by its release, is told too.
func TestOnLostOfAHoldThatWasGoneWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost losses
		s := memory.New()
		c := open(t, s, &dlock.Options{OnLost: lost.add})
		h := mustLock(t, t.Context(), c.Mutex("m"))
		broken, err := s.Break(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, 1, broken)
		wantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
		synctest.Wait()
		assert.Equal(t, []*dlock.Hold{h}, lost.all())
		wantError(t, h.Unlock(), "unlock", "m", dlock.ErrNotHeld)
	})
}
