package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// Calls for distinct names wait on a silent store. MaxWaiters bounds them as it bounds calls that
// wait for a held lock: calls beyond it fail at once, and no call starts a goroutine.
func TestMaxWaitersBoundsAnOutage(t *testing.T) {
	const limit, names = 1_000, 3_000
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{MaxWaiters: limit})
		s.GoSilent()
		ctx, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		before := runtime.NumGoroutine()
		var refused, cancelled atomic.Int64
		var wg sync.WaitGroup
		for i := range names {
			wg.Go(func() {
				_, err := c.Mutex(fmt.Sprint(i)).LockContext(ctx)
				switch {
				case errors.Is(err, dlock.ErrTooManyWaiters):
					refused.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					assert.Fail(t, "another end", "%v", err)
				}
			})
		}
		synctest.Wait()
		assert.EqualValues(t, names-limit, refused.Load(), "ErrTooManyWaiters")
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, limit+limit/10, "goroutines")
		assert.Equal(t, limit, c.Stats().Waiters)
		cancel()
		wg.Wait()
		assert.EqualValues(t, limit, cancelled.Load())
		s.Recover()
	})
}
