package handover

import (
	"context"
	"fmt"
	"sync"
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

// arrivals starts calls one after another, and records in which order they get the lock.
type arrivals struct {
	t  *testing.T
	wg sync.WaitGroup

	mu     sync.Mutex
	served []string
}

// arrive starts a call that holds for a second, and returns when the call waits or holds.
func (q *arrivals) arrive(caller string, lock func(context.Context) (*dlock.Hold, error)) (cancel func()) {
	ctx, cancel := context.WithCancel(context.Background())
	q.wg.Go(func() {
		h, err := lock(ctx)
		if err != nil {
			assert.ErrorIs(q.t, err, context.Canceled)
			return
		}
		q.mu.Lock()
		q.served = append(q.served, caller)
		q.mu.Unlock()
		time.Sleep(time.Second)
		assert.NoError(q.t, h.Unlock())
	})
	synctest.Wait()
	return cancel
}

func TestLocalQueueIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		q := arrivals{t: t}
		var want []string
		for i := range 30 {
			caller := fmt.Sprint(i)
			want = append(want, caller)
			q.arrive(caller, c.Mutex("m").LockContext)
		}
		q.wg.Wait()
		assert.Equal(t, want, q.served)
	})
}

// Of a hundred waiting calls of one process only the front has a place in the store's queue. It
// has that already while this process holds.
func TestLocalQueueSendsOnlyItsFrontToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		q := arrivals{t: t}
		q.arrive("first", c.Mutex("m").LockContext)
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "one place, while this process holds")
		q.arrive("far", peer.Mutex("m").LockContext)
		for range 100 {
			q.arrive("later", c.Mutex("m").LockContext)
		}
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 2, "one for each process")
		require.NoError(t, h.Unlock())
		for range 99 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			state := coretest.Inspect(t, s, "m")
			assert.Len(t, state.Holders, 1)
			assert.LessOrEqual(t, len(state.Queue), 2)
			time.Sleep(500 * time.Millisecond)
		}
		q.wg.Wait()
		assert.Equal(t, []string{"first", "far"}, q.served[:2], "fair between processes")
	})
}

func TestLocalQueueAdmitsLeadingReadersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, t.Context(), peer.Mutex("m"))
		q := arrivals{t: t}
		rw := c.RWMutex("m")
		for _, caller := range []string{"r1", "r2", "r3"} {
			q.arrive(caller, rw.RLockContext)
		}
		q.arrive("w1", rw.LockContext)
		q.arrive("r4", rw.RLockContext)
		q.arrive("r5", rw.RLockContext)
		modes := func() (modes []store.Mode) {
			for _, e := range coretest.Inspect(t, s, "m").Queue {
				modes = append(modes, e.Mode)
			}
			return modes
		}
		assert.Equal(t, []store.Mode{store.Shared}, modes(), "one request for all readers")
		require.NoError(t, h.Unlock())
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		assert.Equal(t, []store.Mode{store.Exclusive}, modes())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []store.Mode{store.Shared}, modes())
		q.wg.Wait()
		assert.ElementsMatch(t, []string{"r1", "r2", "r3"}, q.served[:3])
		assert.Equal(t, "w1", q.served[3])
		assert.ElementsMatch(t, []string{"r4", "r5"}, q.served[4:])
	})
}

// A reader that arrives while readers of this process hold reads with them.
func TestLocalQueueAdmitsAReaderBesideReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := coretest.Open(t, memory.New(), nil).RWMutex("m")
		start := time.Now()
		q := arrivals{t: t}
		for range 5 {
			q.arrive("reader", rw.RLockContext)
		}
		q.wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestLocalQueueGoesOnWhenAWaiterIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		q := arrivals{t: t}
		rw := c.RWMutex("m")
		cancel := make(map[string]func())
		for _, caller := range []string{"front", "second", "middle", "last"} {
			cancel[caller] = q.arrive(caller, rw.LockContext)
		}
		cancel["middle"]()
		cancel["front"]()
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1, "the next call is at the front")
		cancel["last"]()
		require.NoError(t, h.Unlock())
		q.wg.Wait()
		assert.Equal(t, []string{"second"}, q.served)
		coretest.WantFree(t, s, "m")
	})
}

// When a waiting writer is cancelled, the readers behind it join the readers before it.
func TestLocalQueueJoinsReadersWhenTheWriterBetweenIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, t.Context(), peer.Mutex("m"))
		q := arrivals{t: t}
		rw := c.RWMutex("m")
		q.arrive("r1", rw.RLockContext)
		cancel := q.arrive("w", rw.LockContext)
		q.arrive("r2", rw.RLockContext)
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1)
		cancel()
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1)
		start := time.Now()
		require.NoError(t, h.Unlock())
		q.wg.Wait()
		assert.ElementsMatch(t, []string{"r1", "r2"}, q.served)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// Calls for different names do not wait for each other.
func TestLocalQueuesOfDistinctNamesAreDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		start := time.Now()
		q := arrivals{t: t}
		for i := range 200 { // far more than the client has shards
			q.arrive("x", c.Mutex(fmt.Sprint(i)).LockContext)
		}
		q.wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}
