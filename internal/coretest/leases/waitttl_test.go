package leases

import (
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

// A promotion may last longer than the lease of a hold. Its first renewal shortens it, at the
// store and for the holder.
func TestWaitTTLLongerThanTTL(t *testing.T) {
	for name, opts := range map[string][]dlock.LockOption{
		"renewed": nil, "fixed": {dlock.WithoutRenewal()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				rival := coretest.Open(t, s, nil).Mutex("m")
				c := coretest.Open(t, s.Peer(), &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
				first := coretest.MustLock(t, t.Context(), rival)
				holds := make(chan *dlock.Hold, 1)
				go func() {
					h, err := c.Mutex("m", opts...).LockContext(t.Context())
					assert.NoError(t, err)
					holds <- h
				}()
				synctest.Wait()
				require.NoError(t, first.Unlock())
				h, granted := <-holds, time.Now()
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					held := h.Err() == nil
					other, err := rival.TryLockContext(t.Context())
					if err == nil {
						assert.False(t, held, "a rival was granted a lock that its holder believed to hold")
						require.NoError(t, other.Unlock())
						break
					}
				}
				if name == "renewed" {
					assert.NoError(t, h.Unlock(), "the hold could be renewed")
				} else {
					assert.LessOrEqual(t, time.Since(granted), 2100*time.Millisecond, "TTL after the grant")
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				}
			})
		})
	}
}

// A grant is pushed when the last request is nearly one TTL old. The certain part of its lease
// ends before a renewal can arrive, so the client asks again, which gives it a whole lease.
func TestPushedLateInTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := coretest.Open(t, s, nil).Mutex("m")
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Renew, faultstore.Every, faultstore.DelayRequest(100*time.Millisecond))
		c := coretest.Open(t, slow, &dlock.Options{TTL: 2 * time.Second, WaitTTL: 20 * time.Second})
		first := coretest.MustLock(t, t.Context(), rival)
		holds := make(chan *dlock.Hold, 1)
		go func() {
			h, err := c.Mutex("m").LockContext(t.Context())
			assert.NoError(t, err)
			holds <- h
		}()
		synctest.Wait()
		time.Sleep(1950 * time.Millisecond)
		require.NoError(t, first.Unlock())
		h := <-holds
		time.Sleep(time.Second)
		assert.NoError(t, h.Err())
		assert.NoError(t, h.Unlock())
	})
}

// A lease without renewal gets its whole TTL from a request. If its grant is pushed while the
// answer to an earlier request is under way, the next request follows at once.
func TestPushedDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(askGap/2))
		m := coretest.Open(t, slow, nil).Mutex("m", dlock.WithoutRenewal())
		asked := time.Now()
		holds := make(chan *dlock.Hold, 1)
		go func() {
			h, err := m.LockContext(t.Context())
			assert.NoError(t, err)
			holds <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		h := <-holds
		assert.Equal(t, askGap/2, time.Since(asked))
		assert.Equal(t, 2, slow.Count(faultstore.Acquire))
		require.NoError(t, h.Unlock())
	})
}

// As TestWaitTTLLongerThanTTL, with the connection cut after the first renewal.
func TestWaitTTLLongerThanTTLWithoutFurtherRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := coretest.Open(t, s, nil).Mutex("m")
		cut := coretest.NewSpy(s.Peer())
		c := coretest.Open(t, cut, &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
		first := coretest.MustLock(t, t.Context(), rival)
		holds := make(chan *dlock.Hold, 1)
		go func() {
			h, err := c.Mutex("m").LockContext(t.Context())
			assert.NoError(t, err)
			holds <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		h := <-holds
		for cut.Renews.Load() == 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		cut.GoDown()
		next := coretest.MustLock(t, t.Context(), rival)
		assert.ErrorIs(t, h.Err(), dlock.ErrLost, "lost before the rival was granted")
		require.NoError(t, next.Unlock())
		cut.Recover()
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}
