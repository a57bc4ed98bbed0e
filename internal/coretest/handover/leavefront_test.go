package handover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// A waiter that gives up leaves its place at the store to the waiter behind it, also
// while another process holds the lock.
func TestWaiterBehindOneThatGivesUpGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		near := coretest.Open(t, s, nil)
		far := coretest.Open(t, s.Peer(), nil)
		held := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		ctx, cancel := context.WithCancel(t.Context())
		go near.Mutex("m").LockContext(ctx)
		synctest.Wait()
		got := make(chan *dlock.Hold, 1)
		go func() {
			h, err := near.Mutex("m").LockContext(t.Context())
			assert.NoError(t, err)
			got <- h
		}()
		synctest.Wait()

		cancel()
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "places at the store")
		assert.NoError(t, held.Unlock())
		select {
		case h := <-got:
			assert.NoError(t, h.Unlock())
		case <-time.After(time.Minute):
			t.Fatal("the waiter behind waits without a place")
		}
	})
}
