package handover

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

// A place at the store that no waiter needs any more is given up soon, while the lock is held.
func TestLocalHandoverLeavesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1)
		require.NoError(t, first.Unlock())
		second := <-got[0]
		assert.Equal(t, first.Token()+1, second.Token())
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "the process keeps the place")
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		assert.Empty(t, coretest.Inspect(t, s, "m").Queue, "no call needs the place")
		assert.NoError(t, second.Err())
		began := time.Now()
		require.NoError(t, second.Unlock())
		assert.Zero(t, time.Since(began), "Unlock waits for no place that has gone")
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// When Unlock returns and no call waits, the lock is free for others at once. The place that was
// kept for local waiters is gone with it.
func TestLocalHandoverGivesThePlaceUpWithTheLock(t *testing.T) {
	for what, tc := range map[string]struct{ acquire, release time.Duration }{
		"the release is slow":    {0, 2 * time.Millisecond},
		"a request is under way": {time.Second, 0},
		"both":                   {time.Second, 2 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, nil)
			first, _ := handing(t, c)
			var place atomic.Value
			s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				place.Store(req.ID)
				time.Sleep(tc.acquire)
				return s.Store.Acquire(ctx, req)
			})
			s.OnRelease(func(ctx context.Context, ref store.Ref) error {
				if ref.ID == place.Load() {
					time.Sleep(tc.release)
				}
				return s.Store.Release(ctx, ref)
			})
			got := make(chan *dlock.Hold)
			go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
			synctest.Wait()
			require.NoError(t, first.Unlock())
			second := <-got
			assert.Equal(t, first.Token()+1, second.Token())
			began := time.Now()
			require.NoError(t, second.Unlock())
			coretest.WantFree(t, s, "m")
			assert.LessOrEqual(t, time.Since(began), tc.acquire+tc.release, what)
			synctest.Wait()
			assert.Zero(t, coretest.Gauges(c))
		})
	}
}

// The last Unlock of a burst releases the hold and the place in the store's queue side by side. It
// takes as long as one release.
func TestUnlockReleasesHoldAndPlaceSideBySide(t *testing.T) {
	const latency = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		first, got := handing(t, coretest.Open(t, s, nil), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		require.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "no place to give up")
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			if err := coretest.Sleep(ctx, latency); err != nil {
				return err
			}
			return s.Store.Release(ctx, ref)
		})
		began := time.Now()
		require.NoError(t, second.Unlock())
		assert.LessOrEqual(t, time.Since(began), latency+latency/10)
		coretest.WantFree(t, s, "m")
	})
}

// A store that does not answer the release of the place delays Unlock no longer than StoreTimeout.
func TestLocalHandoverUnlocksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		synctest.Wait()
		place := coretest.Inspect(t, s, "m").Queue[0].ID // its beginning
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			if strings.HasPrefix(ref.ID, place) {
				return coretest.Hang(ctx)
			}
			return s.Store.Release(ctx, ref)
		})
		began := time.Now()
		assert.NoError(t, second.Unlock(), "the lock itself is released")
		assert.Equal(t, storeTimeout, time.Since(began))
		s.Recover()
	})
}

// A call that arrives while the process keeps a place makes no store call.
func TestLocalHandoverKeepsOnePlaceForLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		calls := s.Calls()
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go func() { _, _ = c.Mutex("m").LockContext(ctx) }()
			synctest.Wait()
		}
		assert.Equal(t, calls, s.Calls())
		cancel()
		synctest.Wait()
		require.NoError(t, second.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// A grant to the kept place goes to the writer that is at the front of the local queue then.
func TestLocalHandoverPlaceServesTheFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		time.Sleep(20 * time.Millisecond) // the window of local hand-over is over
		acquires := s.Acquires.Load()
		require.NoError(t, second.Unlock())
		third := <-got[1]
		assert.LessOrEqual(t, s.Acquires.Load(), acquires+1, "the place was there; only the next place needs a request")
		assert.Greater(t, third.Token(), second.Token()+30, "past the span of the batch before")
		require.NoError(t, third.Unlock())
		fourth := <-got[2]
		assert.Equal(t, third.Token()+1, fourth.Token())
		require.NoError(t, fourth.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// The store grants the place of the process while it still holds, so its hold is gone. The waiter at
// the front gets the grant at once. The old hold is not passed on: that would make two holders.
func TestHoldThatIsGoneIsNotPassedOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first, got := handing(t, coretest.Open(t, s, nil), t.Context(), t.Context())
		began := time.Now()
		_, err := s.Break(t.Context(), "m") // the place is granted
		require.NoError(t, err)
		assert.ErrorIs(t, first.Unlock(), dlock.ErrLost)
		second := <-got[0]
		assert.Zero(t, time.Since(began))
		assert.Empty(t, got[1], "two holders")
		require.NoError(t, second.Unlock())
		require.NoError(t, (<-got[1]).Unlock())
	})
}

// The same for a reconnection: the place keeper asks the store again, because it may have missed the
// grant of its place.
func TestLocalHandoverKeepsTheReconnection(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		events := faultstore.New(s.Peer())
		first, got := handing(t, coretest.Open(t, events, nil), t.Context(), t.Context())
		began := time.Now()
		events.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		_, err := s.Break(t.Context(), "m") // the place is granted, and the event is lost
		require.NoError(t, err)
		events.Emit(store.Event{})
		require.NoError(t, first.Unlock())
		third := <-got[1]
		assert.LessOrEqual(t, time.Since(began), 2*coretest.AskGap)
		_ = (<-got[0]).Unlock()
		require.NoError(t, third.Unlock())
	})
}

// A grant that came too late for the place keeper to use is no error of the calls behind it. One
// of them asks again.
func TestReadersOutliveALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := coretest.NewSpy(m)
		c, far := coretest.Open(t, s, nil), coretest.Open(t, m.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		leave[0]() // the process keeps the place
		synctest.Wait()
		var late sync.Once
		s.OnAcquire(func(ctx context.Context, req store.Request) (g store.Grant, err error) {
			late.Do(func() { g = store.Grant{Held: true, Token: 1, TTL: time.Nanosecond} })
			if g.Held {
				return g, nil
			}
			return s.Store.Acquire(ctx, req)
		})
		time.Sleep(waitTTL)
		require.NoError(t, w.Unlock())
		for _, ch := range got[1:] {
			h, ok := <-ch
			require.True(t, ok)
			require.NoError(t, h.Unlock())
		}
	})
}

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
