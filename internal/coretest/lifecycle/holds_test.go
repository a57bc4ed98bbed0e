package lifecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// A renewal may be under way when its hold is released, or arrive after that. It does nothing to
// the next hold of the name, neither here nor at the store.
func TestFault71RenewalOutlivesRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var lost coretest.Losses
		c := coretest.Open(t, s, &dlock.Options{TTL: 30 * time.Millisecond, OnLost: lost.Add})
		var late atomic.Int64
		var released sync.Map
		s.OnRenew(func(ctx context.Context, refs []store.Ref) []error {
			time.Sleep(rand.N(6 * time.Millisecond))
			gone := make([]bool, len(refs))
			for i, ref := range refs {
				_, gone[i] = released.Load(ref.ID)
			}
			errs := s.Store.Renew(context.WithoutCancel(ctx), refs)
			for i := range refs {
				if gone[i] {
					late.Add(1)
					assert.ErrorIs(t, errs[i], store.ErrLost, "a released hold was revived")
				}
			}
			time.Sleep(rand.N(2 * time.Millisecond))
			return errs
		})
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			defer released.Store(ref.ID, true)
			return s.Store.Release(ctx, ref)
		})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for range coretest.Interleavings {
			h := coretest.MustLock(t, ctx, c.Mutex("m"))
			time.Sleep(rand.N(25 * time.Millisecond))
			require.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
		synctest.Wait()
		assert.Empty(t, lost.All())
		time.Sleep(time.Second)
		assert.Greater(t, late.Load(), int64(coretest.Interleavings/50), "too few renewals arrived late")
		coretest.WantFree(t, s, "m")
	})
}

// A process dies and says nothing. Its lock is free when the lease has ended, and the next token
// is greater.
func TestFault78ProcessDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		died := coretest.NewSpy(s.Peer())
		victim := coretest.Open(t, died, &dlock.Options{TTL: 10 * time.Second})
		h := coretest.MustLock(t, t.Context(), victim.Mutex("m"))
		time.Sleep(time.Minute)
		died.GoDown()
		last := coretest.Inspect(t, s, "m").Holders[0].Remaining
		start := time.Now()
		next := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		assert.GreaterOrEqual(t, time.Since(start), last)
		assert.LessOrEqual(t, time.Since(start), last+50*time.Millisecond)
		assert.Greater(t, next.Token(), h.Token())
		require.NoError(t, next.Unlock())
		died.Recover()
	})
}

// An operator removes the hold. The next renewal reports the loss, a waiter is woken at once, and
// the token refuses the old holder.
func TestFault84BrokenWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		ctx := h.Context(t.Context())
		granted := make(chan *dlock.Hold, 1)
		peer := coretest.Open(t, s.Peer(), nil)
		go func() {
			next, err := peer.Mutex("m").LockContext(t.Context())
			assert.NoError(t, err, fmt.Sprint(err))
			granted <- next
		}()
		synctest.Wait()
		broken, err := store.Breaker(s).Break(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, 1, broken)

		start := time.Now()
		next := <-granted
		assert.Zero(t, time.Since(start))
		assert.Greater(t, next.Token(), h.Token())
		<-h.Done()
		assert.LessOrEqual(t, time.Since(start), 10*time.Second, "a third of the TTL")
		assert.ErrorIs(t, h.Err(), dlock.ErrLost)
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.NoError(t, next.Err(), "the old holder's Unlock took the new hold")
		require.NoError(t, next.Unlock())
		coretest.WantFree(t, s, "m")
	})
}
