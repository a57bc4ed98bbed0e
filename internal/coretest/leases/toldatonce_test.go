package leases

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A loss is told when it is found, also the hundredth of a client: what runs the callbacks is
// free again after each.
func TestEveryLossIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{OnLost: func(*dlock.Hold) { told.Add(1) }})
		for i := range int64(100) {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			_, err := c.Break(t.Context(), "m")
			require.NoError(t, err)
			<-h.Done()
			synctest.Wait()
			assert.Equal(t, i+1, told.Load())
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
	})
}
