package dlock_test

import (
	"context"
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

// gravedigger is a spy that refuses each id from its ask number from on, as a store
// does that cannot grant it any more, until so many are buried.
type gravedigger struct {
	*spy
	mu     sync.Mutex
	asks   map[string]int
	buried []store.Request
	owners map[string]bool
}

func newGravedigger(from, limit int) *gravedigger {
	g := &gravedigger{spy: newSpy(memory.New()), asks: make(map[string]int), owners: make(map[string]bool)}
	g.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
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

// A call that waits goes on with another id of the same owner when the store has given
// up the one it asked by, and what was at the store by that is released.
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
				g := newGravedigger(2, 1)
				other := mustLock(t, t.Context(), open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
				c := open(t, g, nil)
				done := make(chan *dlock.Hold)
				go func() {
					h, err := lock(t.Context(), c.RWMutex("m"))
					assert.NoError(t, err)
					done <- h
				}()
				time.Sleep(waitTTL / 2) // it asks again meanwhile
				require.NoError(t, other.Unlock())
				h := <-done
				require.NotNil(t, h)
				synctest.Wait()
				assert.Len(t, g.buried, 1)
				assert.Len(t, g.asks, 2, "ids")
				assert.Len(t, g.owners, 1)
				state := inspect(t, g, "m")
				assert.Len(t, state.Holders, 1)
				assert.Empty(t, state.Queue)
				require.NoError(t, h.Unlock())
				wantFree(t, g, "m")
				assert.Zero(t, dlock.NamesInUse(c))
			})
		})
	}
}

// Readers who rely on one whose id was given up still get the lock, and so do writers
// behind them.
func TestTheLineOutlivesAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGravedigger(2, 3)
		other := mustLock(t, t.Context(), open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		c := open(t, g, nil)
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
		wantFree(t, g, "m")
		assert.Zero(t, dlock.NamesInUse(c))
	})
}

// Who does not wait is told at once, and so is everybody by a store that refuses new ids.
func TestNewIDsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGravedigger(1, 1000)
		c := open(t, g, nil)
		m := c.Mutex("m")
		_, err := m.TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrLost)
		assert.Len(t, g.buried, 1)
		_, err = m.LockContext(t.Context())
		wantError(t, err, "lock", "m", dlock.ErrLost)
		assert.Len(t, g.buried, 2)
		wantFree(t, g, "m")
		assert.Zero(t, dlock.NamesInUse(c))
	})
}

// Three times a call goes on with another id, and no more. One that does not wait asks
// again after an unknown outcome only, and goes on with none.
func TestIDsAreLostForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGravedigger(2, 1000)
		other := mustLock(t, t.Context(), open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		c := open(t, g, nil)
		m := c.Mutex("m")
		began := time.Now()
		_, err := m.LockContext(t.Context())
		wantError(t, err, "lock", "m", dlock.ErrLost)
		assert.Less(t, time.Since(began), 2*waitTTL)
		assert.Len(t, g.buried, 4)
		assert.Len(t, g.asks, 4, "ids")

		bury, asks := *g.acquire.Load(), 0
		g.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			g, err := bury(ctx, req)
			if asks++; asks == 1 {
				err = errDown
			}
			return g, err
		})
		_, err = m.TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrLost)
		assert.Equal(t, 2, asks)

		require.NoError(t, other.Unlock())
		synctest.Wait()
		wantFree(t, g, "m")
		assert.Zero(t, dlock.NamesInUse(c))
	})
}

// A wait outlives any number of ids that are given up now and then.
func TestWaitingOutlivesIDsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGravedigger(int(ttl/probe)+3, 6)
		other := mustLock(t, t.Context(), open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := open(t, g, nil).Mutex("m")
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

// ending is a context that has ended before anybody is woken by it.
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

// Whose context has ended when he hears that his id was given up is given no other.
func TestNoOtherIDAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGravedigger(2, 1000)
		other := mustLock(t, t.Context(), open(t, g.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		defer other.Unlock()
		m := open(t, g, nil).Mutex("m")
		ctx := &ending{Context: t.Context()}
		bury := *g.acquire.Load()
		g.onAcquire(func(c context.Context, req store.Request) (store.Grant, error) {
			g, err := bury(c, req)
			ctx.over.Store(err != nil)
			return g, err
		})
		_, err := m.LockContext(ctx)
		assert.Error(t, err)
		assert.Len(t, g.asks, 1, "ids")
	})
}
