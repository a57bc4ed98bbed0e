package dlock_test

import (
	"context"
	"runtime"
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

// turns is who had a lock, in order, and with which tokens.
type turns struct {
	mu     sync.Mutex
	who    []string
	tokens []uint64
}

// take has the lock for as long as section says, n times, as who.
func (ts *turns) take(t *testing.T, who string, m locker, n int, section time.Duration) {
	for range n {
		h, err := m.LockContext(context.Background())
		if !assert.NoError(t, err) {
			return
		}
		ts.mu.Lock()
		ts.who, ts.tokens = append(ts.who, who), append(ts.tokens, h.Token())
		ts.mu.Unlock()
		time.Sleep(section)
		assert.NoError(t, h.Unlock())
	}
}

// longest is how many turns in a row others had while who waited, at most.
func (ts *turns) longest(who string) int {
	most, n := 0, 0
	for _, w := range ts.who {
		if w == who {
			most, n = max(most, n), 0
		} else {
			n++
		}
	}
	return most
}

func wantRising(t *testing.T, tokens []uint64) {
	t.Helper()
	for i := 1; i < len(tokens); i++ {
		if !assert.Greater(t, tokens[i], tokens[i-1], "turn %d", i) {
			return
		}
	}
}

// While goroutines of one process wait for each other the store is asked once a
// batch: to give the lock back, and to queue for it anew.
func TestLocalHandover(t *testing.T) {
	for _, goroutines := range []int{2, 3, 16} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(memory.New())
			m := open(t, s, &dlock.Options{LocalHandoffs: 9}).Mutex("m")
			var ts turns
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() { ts.take(t, "here", m, 240/goroutines, 100*time.Microsecond) })
			}
			wg.Wait()
			wantRising(t, ts.tokens)
			assert.Len(t, ts.who, 240)
			synctest.Wait()
			wantFree(t, s, "m")
			assert.LessOrEqual(t, s.acquires.Load(), int64(240/10+3))
			assert.LessOrEqual(t, s.releases.Load(), int64(240/10+3))
		})
	}
}

// A process that waits at the store has its turn after one batch of those that
// stand before it, however many wait there.
func TestLocalHandoverIsBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		opts := &dlock.Options{LocalHandoffs: 5}
		here, far := open(t, s, opts).Mutex("m"), open(t, s.Peer(), opts).Mutex("m")
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here, 60, 10*time.Microsecond) })
		}
		wg.Go(func() { ts.take(t, "far", far, 20, 10*time.Microsecond) })
		wg.Wait()
		wantRising(t, ts.tokens)
		// It comes while a batch is under way, with a place for the next before it.
		assert.LessOrEqual(t, ts.longest("far"), 2*6)
	})
}

func TestLocalHandoverIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		opts := &dlock.Options{LocalHandoffs: 1000}
		here, far := open(t, s, opts).Mutex("m"), open(t, s.Peer(), opts).Mutex("m")
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here, 20, 3*time.Millisecond) })
		}
		wg.Go(func() { ts.take(t, "far", far, 10, 3*time.Millisecond) })
		wg.Wait()
		wantRising(t, ts.tokens)
		assert.LessOrEqual(t, ts.longest("far"), 2*4, "turns of 3 ms, none of which begins later than 10 ms after the first")
	})
}

// What may not pass on within the process goes through the store each time.
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
			s := newSpy(memory.New())
			c := open(t, s, &tc.opts)
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
			wantRising(t, ts.tokens)
			assert.GreaterOrEqual(t, s.releases.Load(), int64(100), what)
			wantFree(t, s, "m")
		})
	}
}

// first, second and third wait in this order, first having the lock by a grant
// of the store with tokens to pass on.
func handing(t *testing.T, c *dlock.Client, others ...context.Context) (first *dlock.Hold, got []chan *dlock.Hold) {
	t.Helper()
	m := c.Mutex("m")
	before := mustLock(t, t.Context(), m)
	for _, ctx := range append([]context.Context{t.Context()}, others...) {
		ch := make(chan *dlock.Hold, 1)
		got = append(got, ch)
		go func() {
			h, err := m.LockContext(ctx)
			if err != nil {
				t.Log(err)
				close(ch)
				return
			}
			ch <- h
		}()
		synctest.Wait()
	}
	require.NoError(t, before.Unlock())
	synctest.Wait()
	return <-got[0], got[1:]
}

// A call that gives up in the moment in which it is served passes it on.
func TestLocalHandoverToOneWhoLeaves(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			ctx, cancel := context.WithCancel(t.Context())
			first, got := handing(t, open(t, s, nil), ctx, ctx, t.Context())
			go cancel()
			go func() { assert.NoError(t, first.Unlock()) }()
			for _, ch := range got[:2] {
				if h, ok := <-ch; ok {
					require.NoError(t, h.Unlock())
				}
			}
			last := <-got[2]
			require.NotNil(t, last)
			require.NoError(t, last.Unlock())
			synctest.Wait()
			wantFree(t, s, "m")
		})
	}
}

// The same of one who waits behind the envoy, where it is certain to happen: with
// one processor nobody runs between the cancel and the hand-over.
func TestLocalHandoverToOneWhoHasLeft(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			ctx, cancel := context.WithCancel(t.Context())
			first, got := handing(t, open(t, s, nil), t.Context(), ctx, t.Context())
			require.NoError(t, first.Unlock())
			second := <-got[0]
			synctest.Wait()
			cancel()
			require.NoError(t, second.Unlock())
			if h, ok := <-got[1]; ok {
				require.NoError(t, h.Unlock())
			}
			require.NoError(t, (<-got[2]).Unlock())
			synctest.Wait()
			wantFree(t, s, "m")
		})
	}
}

// Loss, of a lease that was passed on, is told to who has it.
func TestLocalHandoverLosesWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var lost losses
		first, got := handing(t, open(t, s, &dlock.Options{OnLost: lost.add}), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		s.cutRenewals(refuseConnection)
		time.Sleep(ttl)
		synctest.Wait()
		assert.ErrorIs(t, second.Err(), dlock.ErrLost)
		assert.Equal(t, []*dlock.Hold{second}, lost.all())
		s.recover()
		third := <-got[1]
		assert.Greater(t, third.Token(), second.Token())
		require.NoError(t, third.Unlock())
		assert.ErrorIs(t, second.Unlock(), dlock.ErrLost)
	})
}

// The new holder is the owner at the store: it re-enters, also in the other mode,
// and what it then has is not passed on while something of it is left.
func TestLocalHandoverAndReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		ctx := second.Context(t.Context())
		again := mustLock(t, ctx, c.Mutex("m"))
		read := mustRLock(t, ctx, c.RWMutex("m"))
		assert.Equal(t, second.Token(), again.Token())
		assert.Equal(t, second.Token(), read.Token(), "the store knows only the first token of the batch")
		require.NoError(t, again.Unlock())
		require.NoError(t, second.Unlock())
		synctest.Wait()
		state := inspect(t, s, "m")
		require.Len(t, state.Holders, 1)
		assert.Equal(t, store.Shared, state.Holders[0].Mode, "a downgrade, with nobody between")
		require.NoError(t, read.Unlock())
		require.NoError(t, (<-got[1]).Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
	})
}

// Close ends everybody: who holds, who is covered, and the envoy.
func TestLocalHandoverAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		require.NoError(t, c.Close())
		assert.ErrorIs(t, second.Err(), dlock.ErrClosed)
		for _, ch := range got[1:] {
			_, ok := <-ch
			assert.False(t, ok)
		}
		wantFree(t, s, "m")
	})
}

// An outage of the store reaches who waits behind the envoy.
func TestLocalHandoverTellsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		s.goDown()
		began := time.Now()
		late := make(chan time.Duration)
		time.AfterFunc(ttl*2/3, func() {
			_, err := c.Mutex("m").LockContext(t.Context())
			assert.ErrorIs(t, err, dlock.ErrUnavailable)
			late <- time.Since(began)
		})
		_, ok := <-got[1]
		assert.False(t, ok)
		assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
		assert.InDelta(t, 2*ttl, <-late, float64(waitTTL), "it comes to the front when the other leaves, and asks for itself")
		s.recover()
		_ = second.Unlock()
	})
}

// While a request of the owner is under way, nobody else goes by its id: it would
// re-enter his hold.
func TestLocalHandoverWaitsForTheOwnersRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first, got := handing(t, c, t.Context())
		arrive := make(chan struct{})
		s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			<-arrive
			return s.Store.Acquire(ctx, req)
		})
		ctx, cancel := context.WithCancel(first.Context(t.Context()))
		read := make(chan *dlock.Hold, 1)
		go func() {
			h, _ := c.RWMutex("m").RLockContext(ctx)
			read <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		cancel()
		assert.Nil(t, <-read)
		close(arrive)
		second := <-got[0]
		state := inspect(t, s, "m")
		assert.Len(t, state.Holders, 1)
		s.recover()
		require.NoError(t, second.Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
	})
}

// scant reserves so many tokens at most, and says so; to a single one it adds nonsense.
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

// A store may reserve fewer tokens than were asked for. Those it has not are not given
// to anyone here.
func TestLocalHandoverGoesByWhatIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		here, far := open(t, scant{s, 3}, nil), open(t, scant{s.Peer(), 3}, nil)
		var ts turns
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { ts.take(t, "here", here.Mutex("m"), 60, 10*time.Microsecond) })
			wg.Go(func() { ts.take(t, "far", far.Mutex("m"), 60, 10*time.Microsecond) })
		}
		wg.Wait()
		wantRising(t, ts.tokens)
		assert.LessOrEqual(t, ts.longest("far"), 2*3)
		assert.GreaterOrEqual(t, ts.longest("far"), 3)
	})
}
