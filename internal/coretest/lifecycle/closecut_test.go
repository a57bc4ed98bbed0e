package lifecycle

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

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
