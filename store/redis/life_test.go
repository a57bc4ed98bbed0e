package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// TestFault102AgeDoesNotStep: a server whose wall clock was slow when it started, and is set later,
// is no older for that.
func TestFault102AgeDoesNotStep(t *testing.T) {
	t.Parallel()
	began := time.Now()
	server, clock := redistest.StartWithClock(t)
	s := open(t, server.URL())
	_, _, err := s.Incarnation(bounded(t))
	require.NoError(t, err)
	clock.Jump(time.Hour)
	until(t, "the server's uptime has jumped", func() bool { return len(field(server, "server", "uptime_in_seconds")) >= 4 })
	for _, handle := range []store.Incarnator{s, open(t, server.URL())} {
		_, age, err := handle.Incarnation(bounded(t))
		require.NoError(t, err)
		require.LessOrEqual(t, age, time.Since(began))
	}
}

// TestAgeIsKnownToOtherHandles: a handle that is opened later knows most of the age that an
// earlier one has seen.
func TestAgeIsKnownToOtherHandles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first := open(t, server.URL())
	id, _, err := first.Incarnation(bounded(t))
	require.NoError(t, err)
	until(t, "a second has passed", func() bool {
		_, age, err := first.Incarnation(bounded(t))
		require.NoError(t, err)
		return age > time.Second
	})
	again, age, err := open(t, server.URL()).Incarnation(bounded(t))
	require.NoError(t, err)
	require.Equal(t, id, again)
	require.Greater(t, age, time.Second/2)
}

// TestFlushIsAnotherLife: data that is lost without a restart is noticed, by all handles alike.
func TestFlushIsAnotherLife(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := open(t, server.URL()), open(t, server.URL())
	before, _, err := a.Incarnation(bounded(t))
	require.NoError(t, err)
	server.MustDo("FLUSHALL")
	after, age, err := b.Incarnation(bounded(t))
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.Less(t, age, time.Second)
	same, _, err := a.Incarnation(bounded(t))
	require.NoError(t, err)
	require.Equal(t, after, same)
}

// TestFault17LostLifeDoesNotReturn: a handle says how long it has seen a life, and the data is lost
// before the server hears that. The life is another one all the same.
func TestFault17LostLifeDoesNotReturn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	far, near := open(t, proxy.URL()), open(t, server.URL())
	before, _, err := far.Incarnation(bounded(t))
	require.NoError(t, err)
	proxy.Plan(func(int, []string) redistest.Action { return redistest.Hold })
	until(t, "the write is on its way", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, _ = far.Incarnation(ctx) // behind the write when that is held
		return proxy.Calls() > 0
	})
	server.MustDo("FLUSHALL")
	written := scriptCalls(t, server)
	proxy.Unhold()
	until(t, "the write arrives", func() bool { return scriptCalls(t, server) > written })
	after, _, err := near.Incarnation(bounded(t))
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

// TestFlushOfANodeThatHoldsAVote: a hold that a bare majority has is not granted to another
// owner when one of the two nodes loses its data.
func TestFlushOfANodeThatHoldsAVote(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	proxies, behind := m.proxies()
	a, b := m.open(behind...), m.open(m.addresses()...)
	proxies[2].Blackhole(true)
	m.free(a, "probe of two")
	r := m.request("n")
	m.hold(a, r)
	held := time.Now()
	m.servers[1].MustDo("FLUSHALL")
	for time.Since(held) < quorumLease-500*time.Millisecond {
		if g, _ := b.Acquire(t.Context(), m.request("n")); g.Held && time.Since(held) < quorumLease {
			t.Fatalf("granted to another owner %v after the first grant", time.Since(held))
		}
	}
	m.free(b, "n")
}

// TestFault103OneServerTwice: a quorum whose nodes are not independent is refused when both addresses have
// answered, also under two prefixes. Before that the two servers may grant.
func TestFault103OneServerTwice(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	for _, second := range []string{servers[0].URL(), servers[0].URL() + "?prefix=other"} {
		var nodes []store.Store
		for _, url := range []string{servers[0].URL(), second, servers[1].URL()} {
			nodes = append(nodes, open(t, url))
		}
		q, err := quorum.NewWithOptions(&quorum.Options{Durable: true, NodeTimeout: 20 * time.Second}, nodes...)
		require.NoError(t, err)
		defer q.Close()
		m := &masters{t: t}
		until(t, "the quorum is refused", func() bool {
			r := m.request("n")
			if _, err = q.Acquire(t.Context(), r); err == nil {
				require.NoError(t, q.Release(t.Context(), quorumRef(r)))
			}
			return err != nil
		})
		require.ErrorIs(t, err, store.ErrRefused)
		require.ErrorContains(t, err, "nodes 0 and 1 are one server")
	}
}
