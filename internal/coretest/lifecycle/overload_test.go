package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A thousand calls a second with deadlines of 1 ms, on a store that takes 5 ms, all fail. They cost
// at most 2.5 store calls each, and all names are usable right after that.
func TestOverloadWithShortDeadlines(t *testing.T) {
	const calls, names = 5_000, 100
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		s.On(faultstore.Any, faultstore.Every, faultstore.DelayRequest(5*time.Millisecond))
		c := coretest.Open(t, s, nil)
		var wg sync.WaitGroup
		for i := range calls {
			time.Sleep(time.Millisecond)
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := c.Mutex(fmt.Sprint(i % names)).LockContext(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, coretest.Gauges(c))
		assert.LessOrEqual(t, float64(s.Count(faultstore.Any))/calls, 2.5, "store calls a Lock")
		for i := range names {
			began := time.Now()
			h, err := c.Mutex(fmt.Sprint(i)).TryLockContext(t.Context())
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(began), 5*time.Millisecond)
			require.NoError(t, h.Unlock())
		}
	})
}
