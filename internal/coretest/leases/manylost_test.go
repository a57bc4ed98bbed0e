package leases

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Some 100,000 holds are lost at once, and a hundred OnLost callbacks block. OnLost runs for every hold,
// with at most 2,000 more goroutines than before.
func TestFault105ManyHoldsLostAtOnce(t *testing.T) {
	const holds, blocked, most = coretest.ManyHolds, 100, 2_000
	synctest.Test(t, func(t *testing.T) {
		var reported, blocking, goroutines atomic.Int64
		release := make(chan struct{})
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{OnLost: func(*dlock.Hold) {
			reported.Add(1)
			if n := int64(runtime.NumGoroutine()); n > goroutines.Load() {
				goroutines.Store(n)
			}
			if blocking.Add(1) <= blocked {
				<-release
			}
		}})
		list := make([]*dlock.Hold, holds)
		for i := range list {
			list[i] = coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i)))
		}
		synctest.Wait()
		before := int64(runtime.NumGoroutine())
		s.GoDown()
		time.Sleep(2 * ttl)
		synctest.Wait()
		assert.EqualValues(t, holds, reported.Load(), "OnLost calls")
		assert.LessOrEqual(t, goroutines.Load()-before, int64(most), "goroutines")

		s.Recover()
		close(release)
		for _, h := range list {
			require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
		time.Sleep(2 * ttl)
		synctest.Wait()
		assert.Zero(t, coretest.Gauges(c))
	})
}

// OnLost runs at most 64 times at once, as long as the calls return soon, and each loss is told.
func TestOnLostHasABound(t *testing.T) {
	const holds, most = 200, 64
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, greatest, told := 0, 0, 0
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{OnLost: func(*dlock.Hold) {
			mu.Lock()
			running++
			greatest, told = max(greatest, running), told+1
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
		}})
		list := make([]*dlock.Hold, holds)
		for i := range list {
			list[i] = coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i)))
		}
		s.CutRenewals(coretest.Refuse)
		time.Sleep(2 * ttl)
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, most, greatest)
		assert.Equal(t, holds, told)
		mu.Unlock()
		for _, h := range list {
			require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
	})
}
