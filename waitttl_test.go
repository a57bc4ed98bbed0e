package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A grant that nobody has claimed yet may last longer than the lease of a hold.
// Its first renewal then shortens it, at the store and so for the holder.
func TestWaitTTLLongerThanTTL(t *testing.T) {
	for name, opts := range map[string][]dlock.LockOption{
		"renewed": nil, "fixed": {dlock.WithoutRenewal()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				rival := open(t, s, nil).Mutex("m")
				c := open(t, s.Peer(), &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
				first := mustLock(t, t.Context(), rival)
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
						assert.False(t, held, "a rival was granted what its holder believed to hold")
						require.NoError(t, other.Unlock())
						break
					}
				}
				if name == "renewed" {
					assert.NoError(t, h.Unlock(), "nothing was in the way of renewing it")
				} else {
					assert.LessOrEqual(t, time.Since(granted), 2100*time.Millisecond, "TTL after the grant")
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				}
			})
		})
	}
}

// A grant is pushed when the last request is nearly a TTL old, so that what is
// certain of the lease ends before a renewal can arrive. Asking again makes it
// whole.
func TestPushedLateInTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := open(t, s, nil).Mutex("m")
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Renew, faultstore.Every, faultstore.DelayRequest(100*time.Millisecond))
		c := open(t, slow, &dlock.Options{TTL: 2 * time.Second, WaitTTL: 20 * time.Second})
		first := mustLock(t, t.Context(), rival)
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

// A lease that is not renewed is made whole by an ask. Where its grant is pushed while
// the answer to an ask from before is on its way, the next one follows at once.
func TestPushedAmidAnAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(askGap/2))
		m := open(t, slow, nil).Mutex("m", dlock.WithoutRenewal())
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

// As TestWaitTTLLongerThanTTL, cut off after the first renewal.
func TestWaitTTLLongerThanTTLWithoutFurtherRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := open(t, s, nil).Mutex("m")
		cut := newSpy(s.Peer())
		c := open(t, cut, &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
		first := mustLock(t, t.Context(), rival)
		holds := make(chan *dlock.Hold, 1)
		go func() {
			h, err := c.Mutex("m").LockContext(t.Context())
			assert.NoError(t, err)
			holds <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		h := <-holds
		synctest.Wait()
		cut.goDown()
		next := mustLock(t, t.Context(), rival)
		assert.ErrorIs(t, h.Err(), dlock.ErrLost, "told before the rival was granted")
		require.NoError(t, next.Unlock())
		cut.recover()
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

// A place that lasts much longer than the lease is asked for again after more
// than a lease. That nothing was heard until then is nobody's fault, and the
// answer gets the time that an answer needs.
func TestAsksLessOftenThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rival := open(t, s, nil).Mutex("m")
		slow := faultstore.New(s.Peer())
		slow.On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(10*time.Millisecond))
		slow.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		c := open(t, slow, &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Minute})
		first := mustLock(t, t.Context(), rival)
		time.AfterFunc(30*time.Second, func() { assert.NoError(t, first.Unlock()) })
		h, err := c.Mutex("m").LockContext(t.Context())
		require.NoError(t, err)
		assert.NoError(t, h.Unlock())
	})
}

// prompt is a store that takes a millisecond for an answer, and tells a waiter to
// ask again so late that a lease has nearly gone by.
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

// An ask that is sent when nothing was confirmed for nearly a TTL, because the store
// wished it so, has as much time for its answer as any other.
func TestAskedAgainAtTheEndOfTTL(t *testing.T) {
	const ttl = 2 * time.Second
	for before := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			first := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
			c := open(t, prompt{s.Peer(), ttl - time.Duration(before)*time.Millisecond/2}, &dlock.Options{TTL: ttl, WaitTTL: time.Minute})
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
