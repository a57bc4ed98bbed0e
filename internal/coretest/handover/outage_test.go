package handover

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An outage ends the waits of all calls in the local queue together, readers and writers. No call
// waits for one more TTL for each call before it.
func TestOutageReachesTheWholeLocalQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		rw := coretest.Open(t, s, nil).RWMutex("m")
		s.GoDown()
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				lock := rw.LockContext
				if i%3 > 0 {
					lock = rw.RLockContext
				}
				_, err := lock(t.Context())
				assert.ErrorIs(t, err, dlock.ErrUnavailable)
				assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
			})
			synctest.Wait()
		}
		wg.Wait()
		s.Recover()
	})
}

// The same where a call was granted locally and the process keeps its place for the calls behind
// it.
func TestOutageReachesTheLocalQueueBehindAPlaceKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		s.GoDown()
		began := time.Now()
		for _, ch := range got[1:] {
			_, ok := <-ch
			assert.False(t, ok)
			assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
		}
		s.Recover()
		_ = second.Unlock()
	})
}

// A call with a longer TTL, or one that has not waited for long, asks the store instead.
func TestOutageLeavesCallsWithALongerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		h := make(chan *dlock.Hold, 2)
		lock := func(m *dlock.Mutex) {
			got, err := m.LockContext(t.Context())
			assert.NoError(t, err)
			h <- got
		}
		s.GoDown()
		failed := make(chan error, 1)
		go func() {
			_, err := c.Mutex("m").LockContext(t.Context())
			failed <- err
		}()
		synctest.Wait()
		go lock(c.Mutex("m", dlock.WithTTL(ttl*3/2))) // it waits for more than half of its TTL by then
		synctest.Wait()
		time.Sleep(ttl * 2 / 3)
		go lock(c.Mutex("m"))
		assert.ErrorIs(t, <-failed, dlock.ErrUnavailable)
		s.Recover()
		for range 2 {
			require.NoError(t, (<-h).Unlock())
		}
	})
}
