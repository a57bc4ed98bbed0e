package lifecycle

import (
	"context"
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

// The store is down, silent, or slow to return after its context has ended. Close gives up within
// its bound and says so, and holds are left to their leases.
func TestCloseOnAStoreThatDoesNotConfirm(t *testing.T) {
	const stuck = 500 * time.Millisecond
	for name, out := range map[string]func(context.Context) error{
		"down": coretest.Refuse, "silent": coretest.Hang,
		"slow to return": func(ctx context.Context) error { <-ctx.Done(); time.Sleep(stuck); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second})
				for _, name := range []string{"a", "b", "c"} {
					coretest.MustLock(t, t.Context(), c.Mutex(name))
				}
				waiting := make(chan struct{})
				go func() {
					defer close(waiting)
					_, err := c.Mutex("a").LockContext(t.Context())
					assert.ErrorIs(t, err, dlock.ErrClosed)
				}()
				synctest.Wait()
				s.Answer(out)
				start := time.Now()
				err := c.Close()
				coretest.WantError(t, err, "close", "", dlock.ErrUnavailable)
				took := time.Since(start)
				assert.GreaterOrEqual(t, took, 4*time.Second)
				assert.LessOrEqual(t, took, 4*time.Second+stuck)
				<-waiting
				calls := s.Calls()
				time.Sleep(time.Hour)
				assert.Equal(t, calls, s.Calls(), "store calls after Close")
			})
		})
	}
}

// There are more holds than can be released in time. Close reports that, and does not say nil for
// the holds that are left.
func TestCloseThatRunsOutOfTimeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second})
		const n = 2_000
		for i := range n {
			coretest.MustLock(t, t.Context(), c.Mutex(string(rune('A'+i))))
		}
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			time.Sleep(900 * time.Millisecond)
			return s.Store.Release(context.WithoutCancel(ctx), ref)
		})
		err := c.Close()
		names, _ := s.Store.(store.Lister).List(t.Context())
		require.NotEmpty(t, names)
		coretest.WantError(t, err, "close", "", dlock.ErrUnavailable)
	})
}

// When the store is closed first, the client's calls fail as those of a closed client.
func TestStoreClosedUnderTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{TTL: 10 * time.Second})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			_, err := c.Mutex("m").LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrClosed)
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		_, err := c.Mutex("n").LockContext(t.Context())
		coretest.WantError(t, err, "lock", "n", dlock.ErrClosed)
		<-waiting
		<-h.Done()
		assert.ErrorIs(t, h.Err(), dlock.ErrLost, "lost before the lease ends")
		assert.Error(t, h.Unlock())
		start := time.Now()
		coretest.WantError(t, c.Close(), "close", "", dlock.ErrUnavailable) // the hold that could not be released is left to its lease
		assert.Zero(t, time.Since(start))
	})
}

// When the store is closed before Unlock, the lock is left to its lease. Unlock and Close say so.
func TestStoreClosedBeforeUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c, err := dlock.New(s, nil)
		require.NoError(t, err)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.OnRelease(func(context.Context, store.Ref) error { return store.ErrClosed })
		assert.ErrorIs(t, h.Unlock(), dlock.ErrClosed)
		assert.Error(t, c.Close())
	})
}
