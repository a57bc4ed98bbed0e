package dlock_test

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
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The place at the store that nobody needs any more is given up soon, while the
// lock is held, and it does not come before a rival's when the lock is given back.
func TestLocalHandoverLeavesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context())
		assert.Len(t, inspect(t, s, "m").Queue, 1)
		require.NoError(t, first.Unlock())
		second := <-got[0]
		assert.Equal(t, first.Token()+1, second.Token())
		assert.Len(t, inspect(t, s, "m").Queue, 1, "the place is the line's")
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		assert.Empty(t, inspect(t, s, "m").Queue, "nobody came")
		assert.NoError(t, second.Err())
		require.NoError(t, second.Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
		assert.Zero(t, dlock.NamesInUse(c))
	})
}

// When Unlock returns, a lock that nobody waits for is free for others at once:
// the place that the line had kept is gone with it.
func TestLocalHandoverGivesThePlaceUpWithTheLock(t *testing.T) {
	for what, tc := range map[string]struct{ acquire, release time.Duration }{
		"slow to forget it":       {0, 2 * time.Millisecond},
		"a request is on its way": {time.Second, 0},
		"both":                    {time.Second, 2 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(memory.New())
			c := open(t, s, nil)
			first, _ := handing(t, c)
			var place atomic.Value
			s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				place.Store(req.ID)
				time.Sleep(tc.acquire)
				return s.Store.Acquire(ctx, req)
			})
			s.onRelease(func(ctx context.Context, ref store.Ref) error {
				if ref.ID == place.Load() {
					time.Sleep(tc.release)
				}
				return s.Store.Release(ctx, ref)
			})
			got := make(chan *dlock.Hold)
			go func() { got <- mustLock(t, t.Context(), c.Mutex("m")) }()
			synctest.Wait()
			require.NoError(t, first.Unlock())
			second := <-got
			assert.Equal(t, first.Token()+1, second.Token())
			began := time.Now()
			require.NoError(t, second.Unlock())
			wantFree(t, s, "m")
			assert.LessOrEqual(t, time.Since(began), tc.acquire+tc.release, what)
			synctest.Wait()
			assert.Zero(t, dlock.NamesInUse(c))
		})
	}
}

// A store that does not answer keeps Unlock no longer for the sake of the place.
func TestLocalHandoverUnlocksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		synctest.Wait()
		place := inspect(t, s, "m").Queue[0].ID // its beginning
		s.onRelease(func(ctx context.Context, ref store.Ref) error {
			if strings.HasPrefix(ref.ID, place) {
				return hang(ctx)
			}
			return s.Store.Release(ctx, ref)
		})
		began := time.Now()
		assert.NoError(t, second.Unlock(), "the lock itself is given back")
		assert.Equal(t, timeout, time.Since(began))
		s.recover()
	})
}

// Whoever comes while an envoy keeps the place makes no call of the store.
func TestLocalHandoverCoversWhoComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		calls := s.calls()
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go func() { _, _ = c.Mutex("m").LockContext(ctx) }()
			synctest.Wait()
		}
		assert.Equal(t, calls, s.calls())
		cancel()
		synctest.Wait()
		require.NoError(t, second.Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
	})
}

// What the store grants to the place goes to the writer who is at the front
// then, and goes on from there.
func TestLocalHandoverPlaceServesTheFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		time.Sleep(20 * time.Millisecond) // the batch is over, in time
		acquires := s.acquires.Load()
		require.NoError(t, second.Unlock())
		third := <-got[1]
		assert.LessOrEqual(t, s.acquires.Load(), acquires+1, "the place was there; the next asks for one of its own")
		assert.Greater(t, third.Token(), second.Token()+30, "past the span of the batch before")
		require.NoError(t, third.Unlock())
		fourth := <-got[2]
		assert.Equal(t, third.Token()+1, fourth.Token())
		require.NoError(t, fourth.Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
	})
}

// What woke a call in the moment in which it was served is looked at by the envoy.
func TestLocalHandoverKeepsTheEvent(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first, got := handing(t, open(t, s, nil), t.Context(), t.Context())
		began := time.Now()
		_, err := s.Break(t.Context(), "m") // the place is granted
		require.NoError(t, err)
		require.NoError(t, first.Unlock()) // and its call served, who does not know
		third := <-got[1]
		assert.Zero(t, time.Since(began))
		_ = (<-got[0]).Unlock()
		require.NoError(t, third.Unlock())
	})
}

// A grant that came too late for an envoy to use is no error of those who relied on
// it: one of them asks anew.
func TestReadersOutliveALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := newSpy(m)
		c, far := open(t, s, nil), open(t, m.Peer(), nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		leave[0]() // an envoy asks in his place
		synctest.Wait()
		var late sync.Once
		s.onAcquire(func(ctx context.Context, req store.Request) (g store.Grant, err error) {
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
