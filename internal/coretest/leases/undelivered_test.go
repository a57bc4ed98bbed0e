package leases

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowErr is a context whose Err takes a while once it has ended. The call that asks it may be granted
// the lock meanwhile, and has it late: this is a pause between the grant and the return of Lock.
type slowErr struct {
	context.Context
	pause time.Duration
}

func (c slowErr) Err() error {
	err := c.Context.Err()
	if err != nil {
		time.Sleep(c.pause)
	}
	return err
}

// grantedLate has a call of m wait and be granted. It returns the call's result, which comes some
// ten seconds after the grant.
func grantedLate(t *testing.T, c *dlock.Client, m *dlock.Mutex) (result <-chan error) {
	first := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(0)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() {
		h, err := m.LockContext(slowErr{ctx, 10 * time.Second})
		if err == nil {
			err = h.Unlock()
		}
		done <- err
	}()
	time.Sleep(1500 * time.Millisecond) // the call asks why its context has ended
	require.NoError(t, first.Unlock())
	synctest.Wait()
	return done
}

// Two calls of one owner share a grant, which MaxHold ends before the first of them returns. It is one
// loss, so it is told once.
func TestMaxHoldOfASharedGrantIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost coretest.Losses
		c := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: 2 * time.Second, OnLost: lost.Add})
		m := c.Mutex("m").As(dlock.NewOwner())
		late := grantedLate(t, c, m)
		h := coretest.MustLock(t, t.Context(), m) // shares the grant
		<-h.Done()
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.ErrorIs(t, <-late, dlock.ErrLost)
		synctest.Wait()
		assert.True(t, slices.Equal([]*dlock.Hold{h}, lost.All()), "told: %v", lost.All())
		again := coretest.MustLock(t, t.Context(), m) // nothing is counted as lost any more
		require.NoError(t, again.Unlock())
	})
}

// A hold that is lost before its call returns was nobody's. Another call of the owner takes the lock
// then; it is not told that an outer hold was lost.
func TestLossOfAGrantThatNobodyHadConcernsNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost coretest.Losses
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: 4 * time.Second, OnLost: lost.Add})
		m := c.Mutex("m").As(dlock.NewOwner())
		late := grantedLate(t, c, m)
		s.OnRenew(func(_ context.Context, refs []store.Ref) []error {
			errs := make([]error, len(refs))
			for i := range errs {
				errs[i] = store.ErrLost
			}
			return errs
		})
		time.Sleep(4 * time.Second) // the renewal finds the hold lost
		s.OnRenew(s.Store.Renew)
		h := coretest.MustLock(t, t.Context(), m)
		require.NoError(t, h.Err())
		require.Error(t, <-late)
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		assert.Empty(t, lost.All())
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The lease of a grant that no call has returned yet runs out, and the watchdog has not declared it. The
// next Lock of the owner does not take that for the loss of an outer hold, of which it would panic.
func TestFault57PauseBeforeAGrantReachesItsCall(t *testing.T) {
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, &dlock.Options{TTL: 4 * time.Second})
			m := c.Mutex("m").As(dlock.NewOwner())
			late := grantedLate(t, c, m)
			s.CutRenewals(coretest.Refuse)
			h := coretest.MustLock(t, t.Context(), m) // shares the grant, for a moment
			end := h.Deadline()
			require.NoError(t, h.Unlock())
			time.Sleep(time.Until(end))
			m.Lock()
			m.Unlock()
			require.Error(t, <-late)
			coretest.WantFree(t, s, "m")
		})
	}
}

// A grant is lost before its call has it, so no caller unlocks it. The next hold of the owner is lost too. The
// owner cannot lock again before it has unlocked that one.
func TestLossAfterAGrantThatNobodyHadEndsReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		s := coretest.NewSpy(locks)
		c := coretest.Open(t, s, &dlock.Options{TTL: 4 * time.Second})
		m := c.Mutex("m").As(dlock.NewOwner())
		late := grantedLate(t, c, m)
		s.CutRenewals(func(context.Context) error { return store.ErrLost })
		time.Sleep(4 * time.Second) // the renewal finds the hold lost
		s.Recover()
		h := coretest.MustLock(t, t.Context(), m)
		require.Error(t, <-late)
		_, err := locks.Break(t.Context(), "m")
		require.NoError(t, err)
		<-h.Done()
		_, err = m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		require.NoError(t, coretest.MustLock(t, t.Context(), m).Unlock())
	})
}
