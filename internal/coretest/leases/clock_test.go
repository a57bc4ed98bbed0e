package leases

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// Err reads the clock and does not rely on the watchdog. Of many holds that end at one moment,
// some are asked before the watchdog gets to them.
func TestHoldErrGoesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		s.CutRenewals(coretest.Refuse)
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for range 200 {
			m := c.Mutex("m")
			h, nested := coretest.MustLock(t, ctx, m), coretest.MustLock(t, ctx, m)
			time.Sleep(time.Second - coretest.Margin(time.Second) - 1)
			assert.NoError(t, h.Err())
			time.Sleep(time.Nanosecond)
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			assert.True(t, coretest.Closed(h.Done()), "Done is closed when Err reports the loss")
			_, err := m.TryLockContext(ctx)
			assert.ErrorIs(t, err, dlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
			assert.ErrorIs(t, nested.Unlock(), dlock.ErrLost)
			synctest.Wait()
		}
	})
}

// Unlock and re-entry read the clock too.
func TestHoldUnlockAndReentryGoByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		s.CutRenewals(coretest.Refuse)
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for i := range 200 {
			h, nested := coretest.MustLock(t, ctx, c.Mutex("m")), coretest.MustLock(t, ctx, c.Mutex("m"))
			time.Sleep(time.Second - coretest.Margin(time.Second))
			if i%2 == 0 {
				_, err := c.Mutex("m").LockContext(ctx)
				assert.ErrorIs(t, err, dlock.ErrLost)
			}
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
			assert.ErrorIs(t, nested.Unlock(), dlock.ErrLost)
			synctest.Wait()
		}
	})
}

// Context reads the clock too: an expired hold gives a context that has ended.
func TestHoldContextOfALeaseThatRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second})
		for range 100 {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithoutRenewal()))
			time.Sleep(time.Second - coretest.Margin(time.Second))
			assert.ErrorIs(t, context.Cause(h.Context(t.Context())), dlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
	})
}
