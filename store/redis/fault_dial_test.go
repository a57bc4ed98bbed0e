package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// dark is a network that can swallow what is sent to connect, as one does whose host is off.
type dark struct {
	on     atomic.Bool
	dialed chan struct{} // a connection has been asked for in the dark
	light  chan struct{} // closed: connections that were asked for are made
}

func (d *dark) dial(ctx context.Context, addr string, _ *net.Dialer) (net.Conn, error) {
	if d.on.Load() {
		select {
		case d.dialed <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(ample):
			return nil, context.DeadlineExceeded
		case <-d.light:
		}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// darkened is a store with a hold of "a", whose connection is gone, and whose network is dark.
func darkened(t *testing.T) (*redis.Store, *dark) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	d := &dark{dialed: make(chan struct{}, 1), light: make(chan struct{})}
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{proxy.Addr}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true, PipelineMultiplex: -1,
		DialCtxFn: func(ctx context.Context, addr string, n *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.dial(ctx, addr, n)
		},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s := newStore(t, c)
	_, err = s.Acquire(bounded(t), want("a", 1))
	require.NoError(t, err)
	answered := time.Now()
	d.on.Store(true)
	proxy.Cut()
	until(t, "its last reply was long ago", func() bool { return time.Since(answered) > 200*time.Millisecond })
	return s, d
}

// The connection is gone and its host does not answer. While one call waits for a new
// connection, another one with less time returns when its context ends.
func TestDialingOutlivesNoContext(t *testing.T) {
	t.Parallel()
	s, d := darkened(t)
	ctx, giveUp := context.WithCancel(bounded(t))
	first := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, want("b", 2))
		first <- err
	}()
	<-d.dialed
	require.Less(t, lastReturn(20, func(ctx context.Context, i int) {
		var err error
		switch i % 3 {
		case 0:
			_, err = s.Acquire(ctx, want("c", 3+i))
		case 1:
			_, err = s.List(ctx)
		case 2:
			if warnings := s.Check(ctx); len(warnings) > 0 {
				err = errors.New(warnings[0].String())
			}
		}
		if err == nil {
			t.Error("a server in the dark has answered")
		}
	}), lease/2)
	giveUp()
	require.Error(t, <-first)
}

// The connection is gone, and a new one takes longer than the calls have. What their callers have left is not sent then.
func TestFault02LongDialLeavesNoHold(t *testing.T) {
	t.Parallel()
	s, d := darkened(t)
	lastReturn(20, func(ctx context.Context, i int) {
		if _, err := s.Acquire(ctx, want(fmt.Sprint("b", i), 2+i)); err == nil {
			t.Error("a server that is not connected has answered")
		}
	})
	close(d.light)
	until(t, "a call is answered", func() bool {
		_, err := s.Acquire(bounded(t), want("c", 100))
		return err == nil
	})
	names, err := s.List(bounded(t))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "c"}, names)
}

// The server stands still under some calls, and is dead then. Later calls hear that at once, and
// wait for no reply that cannot come.
func TestDeadAfterStoppedIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	_, err := s.Acquire(bounded(t), want("before", 1))
	require.NoError(t, err)
	server.Pause()
	lastReturn(20, func(ctx context.Context, i int) { s.Acquire(ctx, want("a", 2+i)) })
	server.Kill()
	until(t, "a call hears of it", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), lease)
		defer cancel()
		_, err = s.Acquire(ctx, want("a", 1))
		return ctx.Err() == nil
	})
	require.ErrorContains(t, err, "refused")
}

// Calls under way take up all the room, so others are never sent. An id of such a call is not
// buried, because no request of it can arrive late.
func TestUnsentLeavesNoTombstone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	_, err := s.Acquire(bounded(t), want("before", 1))
	require.NoError(t, err)
	server.Pause()
	lastReturn(100, func(ctx context.Context, i int) { s.Acquire(ctx, want("a", 2+i)) })
	ctx, cancel := context.WithTimeout(t.Context(), lease/10)
	defer cancel()
	_, err = s.Acquire(ctx, want("b", 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	server.Resume()
	ref := of(want("b", 1))
	ref.Bury = true
	require.ErrorIs(t, s.Release(bounded(t), ref), store.ErrLost)
	require.Equal(t, "0", server.MustDo("EXISTS", redis.LockKey("b")))
}

// A handle is closed while the server may run its request. That the store is closed would be
// the answer to a request that was not sent.
func TestCloseUnderACallIsUnknown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := open(t, s.proxy.URL())
	sent := make(chan struct{})
	s.plan(func(script string, n int) redistest.Action {
		if script == acquire {
			close(sent)
			return redistest.SwallowReply
		}
		return redistest.Pass
	})
	result := make(chan error, 1)
	go func() {
		_, err := h.Acquire(t.Context(), want("a", 1))
		result <- err
	}()
	<-sent
	until(t, "it is granted", func() bool { return len(s.state("a").Holders) == 1 })
	require.NoError(t, h.Close())
	err := <-result
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrClosed)
	_, err = h.Acquire(t.Context(), want("b", 1))
	require.ErrorIs(t, err, store.ErrClosed)
}

// Many requests fail and are not repeated. What the handle remembers of them ends with later locks.
func TestFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	for i := range 50 {
		r := want("a", i)
		r.TTL, r.WaitTTL = s.MinTTL(), s.MinTTL()
		_, err := s.Acquire(bounded(t), r)
		require.ErrorIs(t, err, redis.ErrNotRun)
	}
	require.Positive(t, redis.Failures(s))
	server.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	until(t, "all are forgotten", func() bool {
		_, err := s.Acquire(bounded(t), want("b", 1))
		require.NoError(t, err)
		require.NoError(t, s.Release(bounded(t), of(want("b", 1))))
		return redis.Failures(s) == 0
	})
}
