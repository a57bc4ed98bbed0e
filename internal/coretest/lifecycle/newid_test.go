package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
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

// buryingStore is a Spy that refuses each id from a given request on, as a store does that cannot
// grant the id any more. It stops after a number of ids.
type buryingStore struct {
	*coretest.Spy
	mu     sync.Mutex
	asks   map[string]int // by id
	buried []store.Request
	owners map[string]bool
}

func newBuryingStore(from, limit int) *buryingStore {
	g := &buryingStore{Spy: coretest.NewSpy(memory.New()), asks: make(map[string]int), owners: make(map[string]bool)}
	g.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		g.mu.Lock()
		g.owners[req.Owner] = true
		g.asks[req.ID]++
		bury := g.asks[req.ID] >= from && len(g.buried) < limit
		if bury {
			g.buried = append(g.buried, req)
		}
		g.mu.Unlock()
		if bury {
			return store.Grant{}, store.ErrLost
		}
		return g.Store.Acquire(ctx, req)
	})
	return g
}

// The store refuses the id of a waiting call. The call goes on with a new id of the same owner,
// and the old id is released.
func TestWaitingOutlivesItsID(t *testing.T) {
	for name, lock := range map[string]func(context.Context, *dlock.RWMutex) (*dlock.Hold, error){
		"writer": func(ctx context.Context, rw *dlock.RWMutex) (*dlock.Hold, error) { return rw.LockContext(ctx) },
		"reader": func(ctx context.Context, rw *dlock.RWMutex) (*dlock.Hold, error) { return rw.RLockContext(ctx) },
		"explicit owner": func(ctx context.Context, rw *dlock.RWMutex) (*dlock.Hold, error) {
			return rw.LockContext(dlock.WithOwner(ctx, dlock.NewOwner()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newBuryingStore(2, 1)
				other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
				c := coretest.Open(t, g, nil)
				done := make(chan *dlock.Hold)
				go func() {
					h, err := lock(t.Context(), c.RWMutex("m"))
					assert.NoError(t, err)
					done <- h
				}()
				time.Sleep(waitTTL / 2) // the waiter asks again in this time
				require.NoError(t, other.Unlock())
				h := <-done
				require.NotNil(t, h)
				synctest.Wait()
				assert.Len(t, g.buried, 1)
				assert.Len(t, g.asks, 2, "ids")
				assert.Len(t, g.owners, 1)
				state := coretest.Inspect(t, g, "m")
				assert.Len(t, state.Holders, 1)
				assert.Empty(t, state.Queue)
				require.NoError(t, h.Unlock())
				coretest.WantFree(t, g, "m")
				assert.Zero(t, coretest.Gauges(c))
			})
		})
	}
}

// Readers that follow a request whose id was refused still get the lock, and so do the writers
// behind them.
func TestTheLocalQueueOutlivesAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(2, 3)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		c := coretest.Open(t, g, nil)
		rw := c.RWMutex("m")
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				lock := rw.LockContext
				if i%4 < 3 {
					lock = rw.RLockContext
				}
				h, err := lock(t.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, h.Unlock())
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * waitTTL)
		require.NoError(t, other.Unlock())
		wg.Wait()
		synctest.Wait()
		assert.Len(t, g.buried, 3)
		coretest.WantFree(t, g, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// A call that does not wait fails at once. On a store that refuses new ids every call does.
func TestNewIDsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(1, 1000)
		c := coretest.Open(t, g, nil)
		m := c.Mutex("m")
		_, err := m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrLost)
		assert.Len(t, g.buried, 1)
		_, err = m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
		assert.Len(t, g.buried, 2)
		coretest.WantFree(t, g, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// A call goes on with a new id three times and no more. A call that does not wait asks again only
// after an unknown outcome, and never with a new id.
func TestIDsAreLostForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(2, 1000)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		c := coretest.Open(t, g, nil)
		m := c.Mutex("m")
		began := time.Now()
		_, err := m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
		assert.Less(t, time.Since(began), 2*waitTTL)
		assert.Len(t, g.buried, 4)
		assert.Len(t, g.asks, 4, "ids")

		bury, asks := g.AcquireFunc(), 0
		g.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			g, err := bury(ctx, req)
			if asks++; asks == 1 {
				err = coretest.ErrDown
			}
			return g, err
		})
		_, err = m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrLost)
		assert.Equal(t, 2, asks)

		require.NoError(t, other.Unlock())
		synctest.Wait()
		coretest.WantFree(t, g, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// A wait survives any number of refused ids, if they are refused now and then.
func TestWaitingOutlivesIDsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(int(ttl/askEvery)+3, 6)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, g, nil).Mutex("m")
		done := make(chan *dlock.Hold)
		go func() {
			h, err := m.LockContext(t.Context())
			assert.NoError(t, err)
			done <- h
		}()
		time.Sleep(10 * ttl)
		synctest.Wait()
		assert.Len(t, g.buried, 6)
		require.NoError(t, other.Unlock())
		h := <-done
		require.NotNil(t, h)
		require.NoError(t, h.Unlock())
	})
}

// ending is a context whose error is set before its Done channel closes.
type ending struct {
	context.Context
	over atomic.Bool
}

func (c *ending) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// A call whose context has ended when its id is refused gets no new one.
func TestNoOtherIDAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(2, 1000)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		defer other.Unlock()
		m := coretest.Open(t, g, nil).Mutex("m")
		ctx := &ending{Context: t.Context()}
		bury := g.AcquireFunc()
		g.OnAcquire(func(c context.Context, req store.Request) (store.Grant, error) {
			g, err := bury(c, req)
			ctx.over.Store(err != nil)
			return g, err
		})
		_, err := m.LockContext(ctx)
		assert.Error(t, err)
		assert.Len(t, g.asks, 1, "ids")
	})
}

// A waiting call got the lock by another id than its first. Its Unlock does not wait for the first id, which
// has nothing at the store.
func TestUnlockAfterALostIDReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBuryingStore(2, 1)
		other := coretest.MustLock(t, t.Context(), coretest.Open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, g, nil).Mutex("m")
		got := make(chan *dlock.Hold, 1)
		go func() { got <- coretest.MustLock(t, t.Context(), m) }()
		time.Sleep(waitTTL / 2) // the waiter asks again in this time
		require.NoError(t, other.Unlock())
		h := <-got
		require.Len(t, g.buried, 1, "the fault has had no effect")
		began := time.Now()
		require.NoError(t, h.Unlock())
		assert.Zero(t, time.Since(began))
	})
}
