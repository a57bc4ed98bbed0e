package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 72: Close with holders and waiters. That nothing goes on afterwards is
// what the bubble checks, which ends when all of its goroutines have.
func TestFault72CloseWithHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := open(t, s, nil), open(t, s.Peer(), nil)
		far := mustLock(t, t.Context(), peer.Mutex("far"))
		h := mustLock(t, t.Context(), c.Mutex("here"))
		nested := mustLock(t, h.Context(t.Context()), c.Mutex("here"))
		m := c.Mutex("lock")
		m.Lock()
		ctx := nested.Context(t.Context())
		var wg sync.WaitGroup
		for _, name := range []string{"far", "far", "far", "here", "lock"} { // in the store's queue and in the line
			wg.Go(func() {
				_, err := c.RWMutex(name).LockContext(t.Context())
				wantError(t, err, "lock", name, dlock.ErrClosed)
			})
		}
		synctest.Wait()

		start := time.Now()
		require.NoError(t, c.Close())
		assert.Zero(t, time.Since(start))
		wg.Wait()
		assert.Len(t, inspect(t, s, "far").Holders, 1)
		assert.Empty(t, inspect(t, s, "far").Queue)
		wantFree(t, s, "here")
		wantFree(t, s, "lock")

		for _, h := range []*dlock.Hold{h, nested} {
			assert.True(t, closed(h.Done()))
			assert.ErrorIs(t, h.Err(), dlock.ErrNotHeld)
			assert.ErrorIs(t, h.Err(), dlock.ErrClosed)
			assert.NotErrorIs(t, h.Err(), dlock.ErrLost)
			wantError(t, h.Unlock(), "unlock", "here", dlock.ErrNotHeld)
		}
		assert.ErrorIs(t, context.Cause(ctx), dlock.ErrClosed)
		m.Unlock() // no panic
		require.NoError(t, far.Unlock())
	})
}

// With nobody but a waiter there is nothing that holds Close up, and still its
// place has to be given back before Close says that all is.
func TestCloseGivesUpThePlacesOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		c := open(t, s.Peer(), nil)
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, err := c.Mutex("m").LockContext(t.Context())
			wantError(t, err, "lock", "m", dlock.ErrClosed)
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		assert.Empty(t, inspect(t, s, "m").Queue)
		<-waited
		require.NoError(t, h.Unlock())
	})
}

func TestCloseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		mustLock(t, t.Context(), c.Mutex("m"))
		s.goMute()
		go func() {
			time.Sleep(time.Millisecond)
			start := time.Now()
			assert.NoError(t, c.Close(), "also while the first is under way")
			assert.Zero(t, time.Since(start))
		}()
		wantError(t, c.Close(), "close", "", dlock.ErrUnavailable)
		assert.NoError(t, c.Close())
	})
}

func TestCloseLeavesTheStoreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		require.NoError(t, open(t, s, nil).Close())
		m := open(t, s, nil).Mutex("m")
		m.Lock()
		m.Unlock()
	})
}

func TestCallsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		rw := c.RWMutex("m")
		require.NoError(t, c.Close())
		_, err := rw.LockContext(t.Context())
		wantError(t, err, "lock", "m", dlock.ErrClosed)
		_, err = rw.TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrClosed)
		_, err = rw.RLockContext(t.Context())
		wantError(t, err, "rlock", "m", dlock.ErrClosed)
		wantError(t, rw.Do(t.Context(), nil), "do", "m", dlock.ErrClosed)
		wantPanic(t, func() { rw.TryRLock() }, "tryrlock", dlock.ErrClosed)
		assert.Zero(t, s.calls())
	})
}

// With a store that is dead, silent, or slow beyond its context, Close gives up
// within its bound and says so; what is held is left to its lease.
func TestCloseOnAStoreThatDoesNotConfirm(t *testing.T) {
	const stuck = 500 * time.Millisecond
	for name, out := range map[string]func(context.Context) error{
		"down": refuseConnection, "mute": hang,
		"slow to return": func(ctx context.Context) error { <-ctx.Done(); time.Sleep(stuck); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				c := open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second})
				for _, name := range []string{"a", "b", "c"} {
					mustLock(t, t.Context(), c.Mutex(name))
				}
				waiting := make(chan struct{})
				go func() {
					defer close(waiting)
					_, err := c.Mutex("a").LockContext(t.Context())
					assert.ErrorIs(t, err, dlock.ErrClosed)
				}()
				synctest.Wait()
				s.answer(out)
				start := time.Now()
				err := c.Close()
				wantError(t, err, "close", "", dlock.ErrUnavailable)
				took := time.Since(start)
				assert.GreaterOrEqual(t, took, 4*time.Second)
				assert.LessOrEqual(t, took, 4*time.Second+stuck)
				<-waiting
				calls := s.calls()
				time.Sleep(time.Hour)
				assert.Equal(t, calls, s.calls(), "nothing goes on")
			})
		})
	}
}

// More holds than can be released in time: those that were are gone, and Close
// does not pretend about the others.
func TestCloseThatRunsOutOfTimeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second})
		const n = 100
		for i := range n {
			mustLock(t, t.Context(), c.Mutex(string(rune('A'+i))))
		}
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			time.Sleep(900 * time.Millisecond)
			return s.Store.Release(context.WithoutCancel(ctx), ref)
		})
		err := c.Close()
		names, _ := s.Store.(store.Lister).List(t.Context())
		require.NotEmpty(t, names)
		wantError(t, err, "close", "", dlock.ErrUnavailable)
	})
}

func TestCloseWaitsForAReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
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
		wantFree(t, s, "m")
		synctest.Wait()
	})
}

// The store closed under the client is as good as a closed client.
func TestStoreClosedUnderTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, &dlock.Options{TTL: 10 * time.Second})
		h := mustLock(t, t.Context(), c.Mutex("m"))
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			_, err := c.Mutex("m").LockContext(t.Context())
			wantError(t, err, "lock", "m", dlock.ErrClosed)
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		_, err := c.Mutex("n").LockContext(t.Context())
		wantError(t, err, "lock", "n", dlock.ErrClosed)
		<-waiting
		<-h.Done()
		assert.Equal(t, dlock.ErrLost, h.Err(), "told before the lease ends")
		assert.Error(t, h.Unlock())
		start := time.Now()
		wantError(t, c.Close(), "close", "", dlock.ErrUnavailable) // what it could not release is left to the lease
		assert.Zero(t, time.Since(start))
	})
}

// Where the store was closed too early, a lock is left to its lease. Unlock says so,
// and so does Close.
func TestStoreClosedBeforeUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c, err := dlock.New(s, nil)
		require.NoError(t, err)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		s.onRelease(func(context.Context, store.Ref) error { return store.ErrClosed })
		assert.ErrorIs(t, h.Unlock(), dlock.ErrClosed)
		assert.Error(t, c.Close())
	})
}
