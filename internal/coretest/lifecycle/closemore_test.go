package lifecycle

import (
	"context"
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

// A second Close during the first returns when the first is done and not before.
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.GoSilent()
		second := make(chan time.Time, 1)
		go func() {
			time.Sleep(time.Millisecond)
			_ = c.Close()
			second <- time.Now()
		}()
		coretest.WantError(t, c.Close(), "close", "", dlock.ErrUnavailable)
		first := time.Now()
		assert.False(t, (<-second).Before(first), "the second Close returned before the first")
	})
}

// The store is closed before Unlock, which would also have to give up a place in the store's queue.
// No call can succeed any more, so Unlock returns at once.
func TestUnlockOnAClosedStoreReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		closing := s.Peer()
		c, err := dlock.New(closing, nil)
		require.NoError(t, err)
		m := c.Mutex("m")
		before := coretest.MustLock(t, t.Context(), m)
		got := make([]chan *dlock.Hold, 2)
		for i := range got {
			got[i] = make(chan *dlock.Hold, 1)
			go func() { got[i] <- coretest.MustLock(t, t.Context(), m) }()
			synctest.Wait()
		}
		require.NoError(t, before.Unlock())
		synctest.Wait()
		require.NoError(t, (<-got[0]).Unlock())
		last := <-got[1]
		require.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "no place to give up")
		require.NoError(t, closing.Close())
		began := time.Now()
		coretest.WantError(t, last.Unlock(), "unlock", "m", dlock.ErrClosed)
		assert.Zero(t, time.Since(began))
		_ = c.Close()
	})
}

// Goroutines wait in Lock behind this client's hold and behind another client's. Close ends each with
// a panic that says so, as no later call can succeed.
func TestFault107CloseWhileGoroutinesWaitInLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		coretest.MustLock(t, t.Context(), c.Mutex("here"))
		far := coretest.MustLock(t, t.Context(), peer.Mutex("far"))
		var wg sync.WaitGroup
		for _, name := range []string{"here", "here", "far", "far"} {
			wg.Go(func() { coretest.WantPanic(t, c.Mutex(name).Lock, "lock", dlock.ErrClosed) })
			wg.Go(func() { coretest.WantPanic(t, c.RWMutex(name).RLock, "rlock", dlock.ErrClosed) })
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		wg.Wait()
		assert.Zero(t, time.Since(start))
		require.NoError(t, far.Unlock())
		coretest.WantFree(t, s, "far")
		coretest.WantFree(t, s, "here")
	})
}

// Calls of the store that Close cuts take a second to return, longer than twice StoreTimeout. When Close returns,
// none is under way.
func TestCloseWaitsForTheCallsThatItCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{StoreTimeout: 100 * time.Millisecond})
		coretest.MustLock(t, t.Context(), c.Mutex("m"))
		var underWay atomic.Int64
		s.OnRelease(func(ctx context.Context, _ store.Ref) error {
			underWay.Add(1)
			defer underWay.Add(-1)
			<-ctx.Done()
			time.Sleep(time.Second)
			return ctx.Err()
		})
		coretest.WantError(t, c.Close(), "close", "", dlock.ErrUnavailable)
		assert.Zero(t, underWay.Load(), "calls of the store under way after Close")
	})
}

// The store does not return to a lock call, although its context has ended. Close does not wait for it without
// end, and says that not all is done.
func TestCloseLeavesACallThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 4 * time.Second // twice StoreTimeout
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{StoreTimeout: bound / 2})
		stuck := make(chan struct{})
		s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
			<-stuck
			return store.Grant{}, coretest.ErrDown
		})
		failed := make(chan error, 1)
		go func() {
			_, err := c.Mutex("m").LockContext(t.Context())
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		coretest.WantError(t, c.Close(), "close", "", dlock.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(start), 2*bound+time.Second)
		close(stuck)
		coretest.WantError(t, <-failed, "lock", "m", dlock.ErrClosed)
	})
}
