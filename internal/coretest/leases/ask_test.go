package leases

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A place that lasts much longer than the lease is asked for again after more than one lease. The
// silence until then is no outage, and the request gets the usual time for its answer.
func TestWaiterThatAsksLessOftenThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := coretest.Open(t, s, nil).Mutex("m")
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(10*time.Millisecond))
		slow.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		c := coretest.Open(t, slow, &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
		first := coretest.MustLock(t, t.Context(), rival)
		time.AfterFunc(30*time.Second, func() { assert.NoError(t, first.Unlock()) })
		h, err := c.Mutex("m").LockContext(t.Context())
		require.NoError(t, err)
		assert.NoError(t, h.Unlock())
	})
}

// prompt is a store that answers after a millisecond. It lets a waiter ask again only when nearly
// one lease has passed.
type prompt struct {
	store.Store
	retry time.Duration
}

func (s prompt) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	time.Sleep(time.Millisecond)
	g, err := s.Store.Acquire(ctx, req)
	g.Retry = s.retry
	return g, err
}

// A request that is sent when nothing was confirmed for nearly one TTL, because the store wished
// so, has as much time for its answer as any other.
func TestAskedAgainAtTheEndOfTTL(t *testing.T) {
	const ttl = 2 * time.Second
	for before := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			first := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
			c := coretest.Open(t, prompt{s.Peer(), ttl - time.Duration(before)*time.Millisecond/2}, &dlock.Options{TTL: ttl, WaitTTL: time.Minute})
			done := make(chan error, 1)
			go func() {
				h, err := c.Mutex("m").LockContext(t.Context())
				if err == nil {
					err = h.Unlock()
				}
				done <- err
			}()
			time.Sleep(10 * ttl)
			require.NoError(t, first.Unlock())
			assert.NoError(t, <-done)
		})
	}
}
