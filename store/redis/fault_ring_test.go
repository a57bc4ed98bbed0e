package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// 3,000 calls are under way, more than rueidis has room for, and the server stands still. Each
// returns when its context ends. When the server goes on, calls are answered again.
func TestFault93CallsOnAStoppedServer(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	_, err := s.Acquire(bounded(t), want("before", 1))
	require.NoError(t, err)
	late := 50 * time.Millisecond
	if underRace {
		late = 500 * time.Millisecond // the detector slows 3000 goroutines down
	}
	server.Pause()
	// How late this machine is with 3000 contexts that end together.
	idle := lastReturn(3000, func(ctx context.Context, _ int) { <-ctx.Done() })
	last := lastReturn(3000, func(ctx context.Context, i int) {
		if _, err := s.Acquire(ctx, want(fmt.Sprint("name ", i), i)); err == nil {
			t.Error("a stopped server has answered")
		}
	})
	t.Logf("the last one returned %v after its context had ended, without calls %v", last, idle)
	require.Less(t, last, idle+late)
	server.Resume()
	g, err := s.Acquire(bounded(t), want("after", 1))
	require.NoError(t, err)
	require.True(t, g.Held)
}

// lastReturn runs f so many times at once, with contexts of 200 ms, and returns how long after the
// end of its context the last one returned.
func lastReturn(n int, f func(ctx context.Context, i int)) time.Duration {
	var all sync.WaitGroup
	var worst atomic.Int64
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			f(ctx, i)
			end, _ := ctx.Deadline()
			over := int64(time.Since(end))
			for w := worst.Load(); over > w && !worst.CompareAndSwap(w, over); w = worst.Load() {
			}
		})
	}
	all.Wait()
	return time.Duration(worst.Load())
}

// The server refuses writes for a while. The caller hears why, and its name costs no more
// than before: an id that was refused for certain is not buried.
func TestFault99RefusalsAreCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProgram(t, server.URL(), func(o *dlock.Options) { o.StoreTimeout = lease / 4 })
	p.take("warm").Unlock()
	server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	_, err := p.store.Acquire(bounded(t), want("a", 1))
	require.ErrorIs(t, err, redis.ErrNotRun)
	passes(t, err, "NOREPLICAS")
	_, err = p.Mutex("b").TryLockContext(bounded(t))
	require.ErrorIs(t, err, dlock.ErrUnavailable)
	require.ErrorContains(t, err, "NOREPLICAS")
	server.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")

	ref := of(want("a", 1))
	ref.Bury = true
	require.ErrorIs(t, p.store.Release(bounded(t), ref), store.ErrLost)
	until(t, "the core has released", func() bool { return p.Close() == nil })
	left := strings.Fields(server.MustDo("KEYS", "*:lock:*"))
	require.Empty(t, left, "a tombstone")
}

// An id whose request had an unknown outcome once is buried, whatever else it was answered.
func TestFault99UnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := open(t, s.proxy.URL())
	s.on(acquire, redistest.CutBefore, 1)
	_, err := h.Acquire(t.Context(), want("a", 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, redis.ErrNotRun)
	s.server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	until(t, "it is refused", func() bool {
		_, err = h.Acquire(t.Context(), want("a", 1))
		return err != nil && strings.Contains(err.Error(), "NOREPLICAS")
	})
	s.server.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	ref := of(want("a", 1))
	ref.Bury = true
	require.ErrorIs(t, h.Release(t.Context(), ref), store.ErrLost)
	_, err = h.Acquire(t.Context(), want("a", 1))
	require.ErrorIs(t, err, store.ErrLost, "a late request of a buried id")
}

// An id was refused for certain and queued later. Its release overtakes a third request, which is
// under way and may arrive late: so the id is buried.
func TestFault99UnderWayIsUnknown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := newStore(t, manyConnections(t, s.proxy.Addr))
	held, req := long(want("a", 1)), long(want("a", 2))
	req.Queue = true
	s.server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	_, err := h.Acquire(bounded(t), req)
	require.ErrorIs(t, err, redis.ErrNotRun)
	s.server.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	_, err = s.direct.Acquire(bounded(t), held)
	require.NoError(t, err)
	g, err := h.Acquire(bounded(t), req)
	require.NoError(t, err)
	require.False(t, g.Held)

	s.on(acquire, redistest.Hold)
	late := make(chan error, 1)
	go func() {
		_, err := h.Acquire(bounded(t), req)
		late <- err
	}()
	until(t, "the third request is held back", func() bool { return len(s.calls(acquire)) == 1 })
	require.NoError(t, s.direct.Release(bounded(t), of(held)))
	require.Len(t, s.state("a").Holders, 1, "the id is granted by an event")
	ref := of(req)
	ref.Bury = true
	until(t, "a release overtakes it on another connection", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := h.Release(ctx, ref)
		return err == nil || errors.Is(err, store.ErrLost)
	})
	s.proxy.Unhold()
	require.ErrorIs(t, <-late, store.ErrLost)
	require.Empty(t, s.state("a").Holders)
}

// A store is closed under more calls than are sent at once, while the first of them is still being
// written. The calls that waited are not written in the place of others.
func TestFault93CloseUnderWaitingCalls(t *testing.T) {
	t.Parallel()
	const sent, waiting = 8, 300 // which is more than travel together
	server := redistest.Start(t)
	wire := writeStop{stopped: make(chan struct{}, 1)}
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true,
		AlwaysPipelining: true, PipelineMultiplex: -1, DialCtxFn: wire.dial,
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s, direct := newStore(t, c), open(t, server.URL())
	_, err = s.Acquire(bounded(t), long(want("before", 0)))
	require.NoError(t, err)

	wire.mu.Lock()
	goOn := sync.OnceFunc(wire.mu.Unlock)
	defer goOn()
	var all sync.WaitGroup
	begin := func(name string, first, n int) {
		for i := first; i < first+n; i++ {
			all.Go(func() {
				if _, err := s.Acquire(bounded(t), long(want(fmt.Sprint(name, i), i))); err == nil {
					t.Error("granted on a wire that is stopped")
				}
			})
		}
	}
	begin("sent ", 1, 1)
	<-wire.stopped
	begin("sent ", 2, sent-1)
	until(t, "all slots are in use", func() bool { used, _ := redis.Calls(s); return used == sent })
	begin("waiting ", 100, waiting)
	until(t, "the others wait", func() bool { _, n := redis.Calls(s); return n == waiting })
	require.NoError(t, s.Close())
	all.Wait()
	goOn()
	require.NoError(t, c.Do(bounded(t), c.B().Ping().Build()).Error()) // comes after all others
	names, err := direct.List(bounded(t))
	require.NoError(t, err)
	require.Greater(t, len(names), 1, "no call was under way")
	for _, name := range names {
		require.NotContains(t, name, "waiting")
	}
}

// writeStop makes connections that write nothing while mu is held.
type writeStop struct {
	mu      sync.RWMutex
	stopped chan struct{} // gets a value when a write begins to wait
}

func (w *writeStop) dial(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := d.DialContext(ctx, "tcp", addr)
	return &writeStopConn{conn, w}, err
}

type writeStopConn struct {
	net.Conn
	wire *writeStop
}

func (c *writeStopConn) Write(p []byte) (int, error) {
	if !c.wire.mu.TryRLock() {
		select {
		case c.wire.stopped <- struct{}{}:
		default:
		}
		c.wire.mu.RLock()
	}
	defer c.wire.mu.RUnlock()
	return c.Conn.Write(p)
}

// The server has forgotten its scripts under many calls. One of them sends the text.
func TestFault100ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	_, err := s.Acquire(bounded(t), want("before", 1))
	require.NoError(t, err)
	server.MustDo("CONFIG", "RESETSTAT")
	server.MustDo("SCRIPT", "FLUSH")
	var all sync.WaitGroup
	for i := range 512 {
		all.Go(func() {
			if _, err := s.Acquire(bounded(t), want(fmt.Sprint("name ", i), i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, commands(server)["eval"], "calls that sent the text")
}
