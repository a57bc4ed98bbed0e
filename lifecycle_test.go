package dlock_test

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
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 68: many callers who leave at moments of chance, at once, and leave
// nothing behind: no place, no hold, no goroutine.
func TestFault68CancelWhileWaiting(t *testing.T) {
	for _, during := range []string{"up", "down", "mute"} {
		t.Run(during, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memory.New()
				s := newSpy(memory)
				peer := open(t, memory.Peer(), nil)
				c := open(t, s, &dlock.Options{TTL: time.Hour})
				held := mustLock(t, t.Context(), peer.RWMutex("m"))
				var wg sync.WaitGroup
				for i := range 500 {
					wg.Go(func() {
						time.Sleep(rand.N(5 * time.Second))
						ctx, cancel := context.WithCancel(t.Context())
						if i%5 == 0 {
							ctx = dlock.WithOwner(ctx, dlock.NewOwner()) // past the line
						}
						var at time.Time
						after := rand.N(10 * time.Second)
						time.AfterFunc(after, func() { at = time.Now(); cancel() })
						f := c.RWMutex("m").LockContext
						if i%2 == 0 {
							f = c.RWMutex("m").RLockContext
						}
						_, err := f(ctx)
						assert.ErrorIs(t, err, context.Canceled)
						assert.Zero(t, time.Since(at))
					})
				}
				time.Sleep(5 * time.Second)
				switch during {
				case "down":
					s.goDown()
				case "mute":
					s.goMute()
				}
				wg.Wait()
				s.recover()
				time.Sleep(10 * time.Second)
				assert.Empty(t, inspect(t, s, "m").Queue)
				require.NoError(t, held.Unlock())
				wantFree(t, s, "m")
			})
		})
	}
}

// Fault 70: the release does not depend on the context of the call.
func TestFault70UnlockAfterTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		m := open(t, s, nil).Mutex("m")
		ctx, cancel := context.WithCancel(t.Context())
		h := mustLock(t, ctx, m)
		cancel()
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			assert.NoError(t, ctx.Err())
			return s.Store.Release(ctx, ref)
		})
		require.NoError(t, h.Unlock())
		wantFree(t, s, "m")

		ctx, cancel = context.WithCancel(t.Context())
		err := m.Do(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
		assert.Equal(t, context.Canceled, err)
		wantFree(t, s, "m")
	})
}

// Fault 71: a renewal under way when its hold is released, and one that is late,
// do nothing to the next hold of the name, here or at the store.
func TestFault71RenewalOutlivesRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var lost losses
		c := open(t, s, &dlock.Options{TTL: 30 * time.Millisecond, OnLost: lost.add})
		var late atomic.Int64
		var released sync.Map
		s.onRenew(func(ctx context.Context, refs []store.Ref) []error {
			time.Sleep(rand.N(6 * time.Millisecond))
			errs := s.Store.Renew(context.WithoutCancel(ctx), refs)
			for i, ref := range refs {
				if _, gone := released.Load(ref.ID); gone {
					late.Add(1)
					assert.ErrorIs(t, errs[i], store.ErrLost, "nothing is revived")
				}
			}
			time.Sleep(rand.N(2 * time.Millisecond))
			return errs
		})
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			defer released.Store(ref.ID, true)
			return s.Store.Release(ctx, ref)
		})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		for range interleavings {
			h := mustLock(t, ctx, c.Mutex("m"))
			time.Sleep(rand.N(25 * time.Millisecond))
			require.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
		synctest.Wait()
		assert.Empty(t, lost.all())
		time.Sleep(time.Second)
		assert.Greater(t, late.Load(), int64(interleavings/50), "the race took place")
		wantFree(t, s, "m")
	})
}

// Fault 73: the count does not outlive the hold that it counts.
func TestFault73ReentryAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, &dlock.Options{TTL: time.Second})
		rival := open(t, s.Peer(), nil).Mutex("m")
		m := c.Mutex("m", dlock.WithMaxHold(time.Second))
		h := mustLock(t, t.Context(), m)
		ctx := dlock.WithOwner(t.Context(), h.Owner())
		time.Sleep(time.Second)
		taken := mustLock(t, t.Context(), rival)
		for _, f := range []func(context.Context) (*dlock.Hold, error){m.LockContext, m.TryLockContext, c.RWMutex("m").RLockContext} {
			_, err := f(ctx)
			assert.ErrorIs(t, err, dlock.ErrLost)
		}
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		_, err := m.TryLockContext(ctx)
		assert.ErrorIs(t, err, dlock.ErrHeld, "unwound: an ordinary owner again")
		require.NoError(t, taken.Unlock())
		require.NoError(t, mustLock(t, ctx, m).Unlock())
	})
}

// Fault 74: who holds nothing takes nothing away.
func TestFault74UnlockWithoutHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		late := mustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(time.Second)))
		early := mustLock(t, t.Context(), c.Mutex("other"))
		require.NoError(t, early.Unlock())
		time.Sleep(time.Second)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		before := inspect(t, s, "m").Holders
		synctest.Wait()
		calls := s.releases.Load()
		wantError(t, early.Unlock(), "unlock", "other", dlock.ErrNotHeld)
		wantError(t, late.Unlock(), "unlock", "m", dlock.ErrLost)
		wantError(t, late.Unlock(), "unlock", "m", dlock.ErrNotHeld)
		wantPanic(t, c.Mutex("m").Unlock, "unlock", dlock.ErrNotHeld)
		synctest.Wait()
		assert.Equal(t, before, inspect(t, s, "m").Holders)
		assert.Equal(t, calls, s.releases.Load())
		require.NoError(t, h.Unlock())
	})
}

// Fault 75: one goroutine is as many owners as it has contexts, and an owner
// that is over is never met again.
func TestFault75OwnersAreNotGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		owners := make(map[dlock.Owner]bool)
		for range 100 {
			h := mustLock(t, t.Context(), m)
			assert.False(t, owners[h.Owner()])
			owners[h.Owner()] = true
			_, err := m.TryLockContext(t.Context()) // same goroutine
			assert.ErrorIs(t, err, dlock.ErrHeld)
			done := make(chan struct{})
			go func() { // another goroutine
				defer close(done)
				assert.NoError(t, mustLock(t, h.Context(t.Context()), m).Unlock())
			}()
			<-done
			require.NoError(t, h.Unlock())
		}
	})
}

// Fault 76: goroutines with one client exclude each other, on every form of call.
func TestFault76GoroutinesOfOneClientExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
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
					h := mustLock(t, t.Context(), c.Mutex("m"))
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

// Fault 78: a process that is gone says nothing more. Its lock is free when the
// lease has run out, and the next token is greater.
func TestFault78ProcessDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		died := newSpy(s.Peer())
		victim := open(t, died, &dlock.Options{TTL: 10 * time.Second})
		h := mustLock(t, t.Context(), victim.Mutex("m"))
		time.Sleep(time.Minute)
		died.goDown()
		last := inspect(t, s, "m").Holders[0].Remaining
		start := time.Now()
		next := mustLock(t, t.Context(), open(t, s.Peer(), nil).Mutex("m"))
		assert.GreaterOrEqual(t, time.Since(start), last)
		assert.LessOrEqual(t, time.Since(start), last+50*time.Millisecond)
		assert.Greater(t, next.Token(), h.Token())
		require.NoError(t, next.Unlock())
		died.recover()
	})
}

// Fault 84: an operator removes the hold. Its holder is told by its next renewal,
// who waits is woken at once, and the token fences the old holder off.
func TestFault84BrokenWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		ctx := h.Context(t.Context())
		granted := make(chan *dlock.Hold, 1)
		peer := open(t, s.Peer(), nil)
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
		assert.Equal(t, dlock.ErrLost, h.Err())
		<-ctx.Done()
		assert.Equal(t, dlock.ErrLost, context.Cause(ctx))
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.NoError(t, next.Err(), "the old holder's Unlock does not concern it")
		require.NoError(t, next.Unlock())
		wantFree(t, s, "m")
	})
}
