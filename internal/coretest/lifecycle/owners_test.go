package lifecycle

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The count of nested holds does not outlive the loss.
func TestFault73ReentryAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		rival := coretest.Open(t, s.Peer(), nil).Mutex("m")
		m := c.Mutex("m", dlock.WithMaxHold(time.Second))
		h := coretest.MustLock(t, t.Context(), m)
		ctx := dlock.WithOwner(t.Context(), h.Owner())
		time.Sleep(time.Second)
		taken := coretest.MustLock(t, t.Context(), rival)
		for _, f := range []func(context.Context) (*dlock.Hold, error){m.LockContext, m.TryLockContext, c.RWMutex("m").RLockContext} {
			_, err := f(ctx)
			assert.ErrorIs(t, err, dlock.ErrLost)
		}
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		_, err := m.TryLockContext(ctx)
		assert.ErrorIs(t, err, dlock.ErrHeld, "after the Unlock the owner may try again")
		require.NoError(t, taken.Unlock())
		require.NoError(t, coretest.MustLock(t, ctx, m).Unlock())
	})
}

// A handle that holds nothing takes nothing away.
func TestFault74UnlockWithoutHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		late := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(time.Second)))
		early := coretest.MustLock(t, t.Context(), c.Mutex("other"))
		require.NoError(t, early.Unlock())
		time.Sleep(time.Second)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		before := coretest.Inspect(t, s, "m").Holders
		synctest.Wait()
		calls := s.Releases.Load()
		coretest.WantError(t, early.Unlock(), "unlock", "other", dlock.ErrNotHeld)
		coretest.WantError(t, late.Unlock(), "unlock", "m", dlock.ErrLost)
		coretest.WantError(t, late.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		coretest.WantPanic(t, c.Mutex("m").Unlock, "unlock", dlock.ErrNotHeld)
		synctest.Wait()
		assert.Equal(t, before, coretest.Inspect(t, s, "m").Holders)
		assert.Equal(t, calls, s.Releases.Load())
		require.NoError(t, h.Unlock())
	})
}

// One goroutine is as many owners as it has contexts, and a private owner that has ended does not
// come back.
func TestFault75OwnersAreNotGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		owners := make(map[dlock.Owner]bool)
		for range 100 {
			h := coretest.MustLock(t, t.Context(), m)
			assert.False(t, owners[h.Owner()])
			owners[h.Owner()] = true
			_, err := m.TryLockContext(t.Context()) // same goroutine
			assert.ErrorIs(t, err, dlock.ErrHeld)
			done := make(chan struct{})
			go func() { // another goroutine
				defer close(done)
				assert.NoError(t, coretest.MustLock(t, h.Context(t.Context()), m).Unlock())
			}()
			<-done
			require.NoError(t, h.Unlock())
		}
	})
}

// Goroutines with one client exclude each other with every form of call.
func TestFault76GoroutinesOfOneClientExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		inside := 0
		section := func() {
			inside++
			assert.Equal(t, 1, inside)
			time.Sleep(time.Millisecond)
			inside--
		}
		shared := c.Mutex("m")
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				switch i % 4 {
				case 0:
					shared.Lock()
					section()
					shared.Unlock()
				case 1:
					h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
					section()
					assert.NoError(t, h.Unlock())
				case 2:
					assert.NoError(t, c.RWMutex("m").Do(t.Context(), func(context.Context) error { section(); return nil }))
				case 3:
					as := shared.As(dlock.NewOwner())
					as.Lock()
					section()
					as.Unlock()
				}
			})
		}
		wg.Wait()
	})
}
