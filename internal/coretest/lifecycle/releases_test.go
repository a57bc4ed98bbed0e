package lifecycle

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While the store is silent, the releases of lost holds pile up. A release that had no turn until
// its lease was over is not sent when the store answers again.
func TestReleasesOfExpiredHoldsAreNotSent(t *testing.T) {
	const holds, slack = 5_000, 1_500
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		c := coretest.Open(t, s, nil)
		list := make([]*dlock.Hold, holds)
		for i := range list {
			list[i] = coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i)))
		}
		heal := s.On(faultstore.Any, faultstore.Every, faultstore.Mute())
		<-list[0].Done()
		synctest.Wait()
		assert.Greater(t, c.Stats().Releases, holds/2, "the fault has had no effect")
		time.Sleep(ttl + 3*coretest.StoreTimeout)
		sent := s.Count(faultstore.Release)
		assert.Less(t, sent, slack, "a silent store gets many releases")
		heal()
		time.Sleep(coretest.StoreTimeout + time.Second)
		synctest.Wait()
		assert.Zero(t, c.Stats().Releases)
		assert.LessOrEqual(t, s.Count(faultstore.Release), sent+slack)
		for _, h := range list {
			require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
		assert.Zero(t, coretest.Gauges(c))
	})
}
