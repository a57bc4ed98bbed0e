package dlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An outage ends the waits of all who stand in the line, readers and writers, and not
// one after another: nobody waits for as many TTLs as there are others before him.
func TestOutageReachesTheWholeLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		rw := open(t, s, nil).RWMutex("m")
		s.goDown()
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
		s.recover()
	})
}

// The same where the one who is served has left his place to an envoy, and behind
// whom it asks for.
func TestOutageReachesTheLineBehindAnEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		s.goDown()
		began := time.Now()
		for _, ch := range got[1:] {
			_, ok := <-ch
			assert.False(t, ok)
			assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
		}
		s.recover()
		_ = second.Unlock()
	})
}

// Who has more patience by his own terms, or has not been there for long, takes his
// turn instead.
func TestOutageLeavesThePatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		h := make(chan *dlock.Hold, 2)
		lock := func(m *dlock.Mutex) {
			got, err := m.LockContext(t.Context())
			assert.NoError(t, err)
			h <- got
		}
		s.goDown()
		failed := make(chan error, 1)
		go func() {
			_, err := c.Mutex("m").LockContext(t.Context())
			failed <- err
		}()
		synctest.Wait()
		go lock(c.Mutex("m", dlock.WithTTL(2*ttl)))
		synctest.Wait()
		time.Sleep(ttl * 2 / 3)
		go lock(c.Mutex("m"))
		assert.ErrorIs(t, <-failed, dlock.ErrUnavailable)
		s.recover()
		for range 2 {
			require.NoError(t, (<-h).Unlock())
		}
	})
}
