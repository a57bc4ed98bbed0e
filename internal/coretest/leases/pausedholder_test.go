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
	"github.com/stretchr/testify/require"
)

// rounds is how often these tests run. The goroutine of the holder and the watchdog wake up at the
// same moment, and in some of the rounds the holder is first, as after a pause of the process.
const rounds = 100

// expired returns a hold whose lease has just ended, and its losses.
func expired(t *testing.T, lost *coretest.Losses) (*dlock.Client, *dlock.Hold, *memory.Store) {
	t.Helper()
	s := memory.New()
	cut := coretest.NewSpy(s.Peer())
	c := coretest.Open(t, cut, &dlock.Options{TTL: time.Second, OnLost: lost.Add})
	h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
	cut.CutRenewals(coretest.Refuse)
	time.Sleep(coretest.Validity(time.Second) - 1)
	require.NoError(t, h.Err())
	time.Sleep(time.Nanosecond)
	return c, h, s
}

// The process pauses in the critical section for longer than the lease. The first look at the hold
// after that finds the loss by the clock. The loss is reported once, and the hold is released.
func TestFault57PauseWhileHeld(t *testing.T) {
	for name, look := range map[string]func(*testing.T, *dlock.Client, *dlock.Hold){
		"Err":    func(t *testing.T, _ *dlock.Client, h *dlock.Hold) { assert.ErrorIs(t, h.Err(), dlock.ErrLost) },
		"Unlock": func(t *testing.T, _ *dlock.Client, h *dlock.Hold) { assert.ErrorIs(t, h.Unlock(), dlock.ErrLost) },
		"Context": func(t *testing.T, _ *dlock.Client, h *dlock.Hold) {
			assert.ErrorIs(t, context.Cause(h.Context(t.Context())), dlock.ErrLost)
		},
		"Close": func(t *testing.T, c *dlock.Client, _ *dlock.Hold) { assert.NoError(t, c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					var lost coretest.Losses
					c, h, s := expired(t, &lost)
					look(t, c, h)
					assert.True(t, coretest.Closed(h.Done()))
					assert.ErrorIs(t, h.Err(), dlock.ErrLost)
					synctest.Wait()
					assert.Equal(t, []*dlock.Hold{h}, lost.All())
					coretest.WantFree(t, s, "m")
					if name != "Unlock" {
						assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
					}
				})
			}
		})
	}
}

// After such a pause a nested call fails, and Do reports the loss.
func TestFault57PauseBeforeReentry(t *testing.T) {
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			m := coretest.Open(t, s, &dlock.Options{TTL: time.Second}).Mutex("m")
			s.CutRenewals(coretest.Refuse)
			err := m.Do(t.Context(), func(ctx context.Context) error {
				ctx = context.WithoutCancel(ctx)
				time.Sleep(coretest.Validity(time.Second))
				_, err := m.LockContext(ctx)
				coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
				return nil
			})
			coretest.WantError(t, err, "do", "m", dlock.ErrLost)

			locker := m.As(dlock.NewOwner())
			locker.Lock()
			locker.Lock()
			time.Sleep(coretest.Validity(time.Second))
			coretest.WantPanic(t, locker.Lock, "lock", dlock.ErrLost)
			locker.Unlock()
			locker.Unlock()
		})
	}
}

// Two locks are held through one value. The Unlock after a pause takes the lost one.
func TestFault57PauseBeforeUnlock(t *testing.T) {
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			cut := coretest.NewSpy(s.Peer())
			m := coretest.Open(t, cut, &dlock.Options{TTL: time.Second}).Mutex("m")
			m.Lock()
			cut.CutRenewals(coretest.Refuse)
			time.Sleep(coretest.Validity(time.Second))
			cut.Recover()
			m.Lock() // by another goroutine
			m.Unlock()
			assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
			m.Unlock()
			coretest.WantFree(t, s, "m")
		})
	}
}
