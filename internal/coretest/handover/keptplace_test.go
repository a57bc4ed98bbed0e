package handover

import (
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

// The place that the process keeps serves a later waiter for as long as that waits. Soon after the last waiter
// the place is given up, and the next waiter gets another.
func TestKeptPlaceServesALaterWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		q := arrivals{t: t}
		places := func() []store.Entry {
			synctest.Wait()
			return coretest.Inspect(t, s, "m").Queue
		}
		q.arrive("first", c.Mutex("m").LockContext)()
		kept := places()
		require.Len(t, kept, 1, "the process keeps the place")
		leave := q.arrive("second", c.Mutex("m").LockContext)
		time.Sleep(25 * time.Millisecond) // longer than a place without waiters is kept
		require.Len(t, places(), 1, "the place of a call that waits was given up")
		assert.Equal(t, kept[0].ID, places()[0].ID)
		leave()
		require.Len(t, places(), 1, "the process keeps the place")
		time.Sleep(25 * time.Millisecond)
		require.Empty(t, places(), "no call needs the place")
		q.arrive("third", c.Mutex("m").LockContext)
		require.Len(t, places(), 1, "the call waits without a place")
		require.NoError(t, h.Unlock())
		q.wg.Wait()
		assert.Equal(t, []string{"third"}, q.served)
		coretest.WantFree(t, s, "m")
	})
}

// Close gives up the place that the process keeps while no call waits.
func TestCloseGivesUpAKeptPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		require.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "no place to give up")
		require.NoError(t, c.Close())
		assert.ErrorIs(t, second.Err(), dlock.ErrClosed)
		coretest.WantFree(t, s, "m")
	})
}
