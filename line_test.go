package dlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queue lets calls come one after the other, and notes who is served when.
type queue struct {
	t  *testing.T
	wg sync.WaitGroup

	mu     sync.Mutex
	served []string
}

// come starts a call that holds for a second, and waits until it waits.
func (q *queue) come(who string, lock func(context.Context) (*dlock.Hold, error)) (cancel func()) {
	ctx, cancel := context.WithCancel(context.Background())
	q.wg.Go(func() {
		h, err := lock(ctx)
		if err != nil {
			assert.ErrorIs(q.t, err, context.Canceled)
			return
		}
		q.mu.Lock()
		q.served = append(q.served, who)
		q.mu.Unlock()
		time.Sleep(time.Second)
		assert.NoError(q.t, h.Unlock())
	})
	synctest.Wait()
	return cancel
}

func TestLineIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		q := queue{t: t}
		var want []string
		for i := range 30 {
			who := fmt.Sprint(i)
			want = append(want, who)
			q.come(who, c.Mutex("m").LockContext)
		}
		q.wg.Wait()
		assert.Equal(t, want, q.served)
	})
}

// Of a thousand goroutines only the front stands in the store's queue, and does
// so already while this process holds.
func TestLineSendsOnlyItsFrontToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := open(t, s, nil), open(t, s.Peer(), nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		q := queue{t: t}
		q.come("first", c.Mutex("m").LockContext)
		assert.Len(t, inspect(t, s, "m").Queue, 1, "the front, while this process holds")
		q.come("far", peer.Mutex("m").LockContext)
		for range 100 {
			q.come("later", c.Mutex("m").LockContext)
		}
		assert.Len(t, inspect(t, s, "m").Queue, 2, "one for each process")
		require.NoError(t, h.Unlock())
		for range 99 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			state := inspect(t, s, "m")
			assert.Len(t, state.Holders, 1)
			assert.LessOrEqual(t, len(state.Queue), 2)
			time.Sleep(500 * time.Millisecond)
		}
		q.wg.Wait()
		assert.Equal(t, []string{"first", "far"}, q.served[:2], "fair between processes")
	})
}

func TestLineAdmitsLeadingReadersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := open(t, s, nil), open(t, s.Peer(), nil)
		h := mustLock(t, t.Context(), peer.Mutex("m"))
		q := queue{t: t}
		rw := c.RWMutex("m")
		for _, who := range []string{"r1", "r2", "r3"} {
			q.come(who, rw.RLockContext)
		}
		q.come("w1", rw.LockContext)
		q.come("r4", rw.RLockContext)
		q.come("r5", rw.RLockContext)
		modes := func() (modes []store.Mode) {
			for _, e := range inspect(t, s, "m").Queue {
				modes = append(modes, e.Mode)
			}
			return modes
		}
		assert.Equal(t, []store.Mode{store.Shared}, modes(), "one asks for all")
		require.NoError(t, h.Unlock())
		synctest.Wait()
		assert.Len(t, inspect(t, s, "m").Holders, 1)
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

// A reader who comes while readers of this process hold reads with them.
func TestLineAdmitsAReaderBesideReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := open(t, memory.New(), nil).RWMutex("m")
		start := time.Now()
		q := queue{t: t}
		for range 5 {
			q.come("reader", rw.RLockContext)
		}
		q.wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestLineGoesOnWhenSomeoneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		h := mustLock(t, t.Context(), c.Mutex("m"))
		q := queue{t: t}
		rw := c.RWMutex("m")
		leave := make(map[string]func())
		for _, who := range []string{"front", "second", "middle", "last"} {
			leave[who] = q.come(who, rw.LockContext)
		}
		leave["middle"]()
		leave["front"]()
		synctest.Wait()
		assert.Len(t, inspect(t, s, "m").Queue, 1, "the next has come to the front")
		leave["last"]()
		require.NoError(t, h.Unlock())
		q.wg.Wait()
		assert.Equal(t, []string{"second"}, q.served)
		wantFree(t, s, "m")
	})
}

// A writer who leaves lets the readers behind it join those ahead.
func TestLineReadersJoinWhenTheWriterBetweenLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := open(t, s, nil), open(t, s.Peer(), nil)
		h := mustLock(t, t.Context(), peer.Mutex("m"))
		q := queue{t: t}
		rw := c.RWMutex("m")
		q.come("r1", rw.RLockContext)
		leave := q.come("w", rw.LockContext)
		q.come("r2", rw.RLockContext)
		assert.Len(t, inspect(t, s, "m").Queue, 1)
		leave()
		synctest.Wait()
		assert.Len(t, inspect(t, s, "m").Queue, 1)
		start := time.Now()
		require.NoError(t, h.Unlock())
		q.wg.Wait()
		assert.ElementsMatch(t, []string{"r1", "r2"}, q.served)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// Names that share nothing do not wait for each other.
func TestLinesOfDistinctNamesAreDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		start := time.Now()
		q := queue{t: t}
		for i := range 200 { // far more than there are shards
			q.come("x", c.Mutex(fmt.Sprint(i)).LockContext)
		}
		q.wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}
