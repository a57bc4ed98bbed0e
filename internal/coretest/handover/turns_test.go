package handover

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// turns records which waiter had a lock, in order, and with which tokens.
type turns struct {
	mu      sync.Mutex
	waiters []string
	tokens  []uint64
}

// take locks m n times for the waiter of that name, each time for the length of section.
func (ts *turns) take(t *testing.T, waiter string, m coretest.Locker, n int, section time.Duration) {
	for range n {
		h, err := m.LockContext(context.Background())
		if !assert.NoError(t, err) {
			return
		}
		ts.mu.Lock()
		ts.waiters, ts.tokens = append(ts.waiters, waiter), append(ts.tokens, h.Token())
		ts.mu.Unlock()
		time.Sleep(section)
		assert.NoError(t, h.Unlock())
	}
}

// longest returns the greatest number of turns that others had in a row while the waiter waited.
func (ts *turns) longest(waiter string) int {
	most, n := 0, 0
	for _, w := range ts.waiters {
		if w == waiter {
			most, n = max(most, n), 0
		} else {
			n++
		}
	}
	return most
}

// While goroutines of one process wait for each other, the store gets two calls a batch: one to
// release the lock, one to queue for it again.
func TestLocalHandover(t *testing.T) {
	for _, goroutines := range []int{2, 3, 16} {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			m := coretest.Open(t, s, &dlock.Options{LocalHandoffs: 9}).Mutex("m")
			var ts turns
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() { ts.take(t, "here", m, 240/goroutines, 100*time.Microsecond) })
			}
			wg.Wait()
			coretest.WantRising(t, ts.tokens)
			assert.Len(t, ts.waiters, 240)
			synctest.Wait()
			coretest.WantFree(t, s, "m")
			assert.LessOrEqual(t, s.Acquires.Load(), int64(240/10+3))
			assert.LessOrEqual(t, s.Releases.Load(), int64(240/10+3))
		})
	}
}

// A process that waits at the store gets the lock after one batch of each process before it,
// however many calls wait there.
func TestLocalHandoverIsBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		opts := &dlock.Options{LocalHandoffs: 5}
		here, far := coretest.Open(t, s, opts).Mutex("m"), coretest.Open(t, s.Peer(), opts).Mutex("m")
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here, 60, 10*time.Microsecond) })
		}
		wg.Go(func() { ts.take(t, "far", far, 20, 10*time.Microsecond) })
		wg.Wait()
		coretest.WantRising(t, ts.tokens)
		// It arrives while a batch is under way and the next batch already has a place.
		assert.LessOrEqual(t, ts.longest("far"), 2*6)
	})
}

func TestLocalHandoverIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		opts := &dlock.Options{LocalHandoffs: 1000}
		here, far := coretest.Open(t, s, opts).Mutex("m"), coretest.Open(t, s.Peer(), opts).Mutex("m")
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here, 20, 3*time.Millisecond) })
		}
		wg.Go(func() { ts.take(t, "far", far, 10, 3*time.Millisecond) })
		wg.Wait()
		coretest.WantRising(t, ts.tokens)
		assert.LessOrEqual(t, ts.longest("far"), 2*4, "turns of 3 ms, none of which begins later than 10 ms after the first")
	})
}

// Locks that may not pass on inside the process go through the store each time.
func TestNoLocalHandover(t *testing.T) {
	owner := func(m *dlock.Mutex) *dlock.Mutex { return m.As(dlock.NewOwner()) }
	for what, tc := range map[string]struct {
		opts   dlock.Options
		lock   []dlock.LockOption
		second []dlock.LockOption
		as     func(*dlock.Mutex) *dlock.Mutex
	}{
		"off":             {opts: dlock.Options{LocalHandoffs: -1}},
		"MaxHold":         {opts: dlock.Options{MaxHold: time.Hour}},
		"fixed":           {lock: []dlock.LockOption{dlock.WithoutRenewal()}},
		"another TTL":     {second: []dlock.LockOption{dlock.WithTTL(time.Minute)}},
		"explicit owners": {as: owner},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, &tc.opts)
			var ts turns
			var wg sync.WaitGroup
			for i := range 2 {
				lock := tc.lock
				if i == 1 && tc.second != nil {
					lock = tc.second
				}
				m := c.Mutex("m", lock...)
				if tc.as != nil {
					m = tc.as(m)
				}
				wg.Go(func() { ts.take(t, "here", m, 50, 100*time.Microsecond) })
			}
			wg.Wait()
			coretest.WantRising(t, ts.tokens)
			assert.GreaterOrEqual(t, s.Releases.Load(), int64(100), what)
			coretest.WantFree(t, s, "m")
		})
	}
}

// scant is a store that reserves at most so many tokens and says so. Beside a single token it
// reports nonsense.
type scant struct {
	store.Store
	most int
}

func (s scant) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	asked := req.Tokens
	req.Tokens = min(asked, s.most)
	g, err := s.Store.Acquire(ctx, req)
	if g.Short = asked - req.Tokens; asked == 1 {
		g.Short = []int{-5, 5}[g.Token%2]
	}
	return g, err
}

func (s scant) Listen(sink func(store.Event)) (stop func()) {
	return s.Store.Listen(func(e store.Event) {
		e.Short = 101 - s.most // of the 101 that are asked for, or of one
		sink(e)
	})
}

// A store may reserve fewer tokens than the request asked for. Tokens that are not reserved are
// not used.
func TestLocalHandoverGoesByWhatIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		here, far := coretest.Open(t, scant{s, 3}, nil), coretest.Open(t, scant{s.Peer(), 3}, nil)
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here.Mutex("m"), 60, 10*time.Microsecond) })
			wg.Go(func() { ts.take(t, "far", far.Mutex("m"), 60, 10*time.Microsecond) })
		}
		wg.Wait()
		coretest.WantRising(t, ts.tokens)
		assert.LessOrEqual(t, ts.longest("far"), 2*3)
		assert.GreaterOrEqual(t, ts.longest("far"), 3)
	})
}
