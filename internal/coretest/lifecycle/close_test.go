package lifecycle

import (
	"context"
	"sync"
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

// Close with holders and waiters. The bubble checks that no goroutine goes on afterwards.
func TestFault72CloseWithHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		far := coretest.MustLock(t, t.Context(), peer.Mutex("far"))
		h := coretest.MustLock(t, t.Context(), c.Mutex("here"))
		nested := coretest.MustLock(t, h.Context(t.Context()), c.Mutex("here"))
		m := c.Mutex("lock")
		m.Lock()
		ctx := nested.Context(t.Context())
		var wg sync.WaitGroup
		for _, name := range []string{"far", "far", "far", "here", "lock"} { // in the store's queue and in the local queue
			wg.Go(func() {
				_, err := c.RWMutex(name).LockContext(t.Context())
				coretest.WantError(t, err, "lock", name, dlock.ErrClosed)
			})
		}
		synctest.Wait()

		start := time.Now()
		require.NoError(t, c.Close())
		assert.Zero(t, time.Since(start))
		wg.Wait()
		assert.Len(t, coretest.Inspect(t, s, "far").Holders, 1)
		assert.Empty(t, coretest.Inspect(t, s, "far").Queue)
		coretest.WantFree(t, s, "here")
		coretest.WantFree(t, s, "lock")

		for _, h := range []*dlock.Hold{h, nested} {
			assert.True(t, coretest.Closed(h.Done()))
			assert.ErrorIs(t, h.Err(), dlock.ErrNotHeld)
			assert.ErrorIs(t, h.Err(), dlock.ErrClosed)
			assert.NotErrorIs(t, h.Err(), dlock.ErrLost)
			coretest.WantError(t, h.Unlock(), "unlock", "here", dlock.ErrNotHeld)
		}
		assert.ErrorIs(t, context.Cause(ctx), dlock.ErrClosed)
		m.Unlock() // no panic
		require.NoError(t, far.Unlock())
	})
}

// With only a waiter, nothing delays Close. Still the waiter's place has to be released before
// Close returns nil.
func TestCloseGivesUpThePlacesOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		c := coretest.Open(t, s.Peer(), nil)
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, err := c.Mutex("m").LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrClosed)
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		assert.Empty(t, coretest.Inspect(t, s, "m").Queue)
		<-waited
		require.NoError(t, h.Unlock())
	})
}

func TestCloseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.GoSilent()
		second := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			second <- c.Close()
		}()
		coretest.WantError(t, c.Close(), "close", "", dlock.ErrUnavailable)
		assert.NoError(t, <-second, "a Close that began during the first")
		start := time.Now()
		assert.NoError(t, c.Close())
		assert.Zero(t, time.Since(start))
	})
}

func TestCloseLeavesTheStoreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		require.NoError(t, coretest.Open(t, s, nil).Close())
		m := coretest.Open(t, s, nil).Mutex("m")
		m.Lock()
		m.Unlock()
	})
}

func TestCallsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		rw := c.RWMutex("m")
		require.NoError(t, c.Close())
		_, err := rw.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrClosed)
		_, err = rw.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrClosed)
		_, err = rw.RLockContext(t.Context())
		coretest.WantError(t, err, "rlock", "m", dlock.ErrClosed)
		coretest.WantError(t, rw.Do(t.Context(), nil), "do", "m", dlock.ErrClosed)
		coretest.WantPanic(t, func() { rw.TryRLock() }, "tryrlock", dlock.ErrClosed)
		assert.Zero(t, s.Calls())
	})
}

func TestCloseWaitsForAReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			time.Sleep(time.Second)
			return s.Store.Release(ctx, ref)
		})
		unlocked := make(chan error)
		go func() { unlocked <- h.Unlock() }()
		synctest.Wait()
		start := time.Now()
		go func() { assert.NoError(t, <-unlocked) }()
		require.NoError(t, c.Close())
		assert.Equal(t, time.Second, time.Since(start))
		coretest.WantFree(t, s, "m")
		synctest.Wait()
	})
}
