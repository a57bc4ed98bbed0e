package zookeeper

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/store"
)

// TestReconnectAtOnce: the first try after a connection that lasted comes without
// a pause, and the next ones, and those after a short one, with it.
func TestReconnectAtOnce(t *testing.T) {
	h := &hosts{}
	require.NoError(t, h.Init([]string{"127.0.0.1:1"}))
	h.Next()
	h.Connected()
	_, pause := h.Next()
	assert.True(t, pause, "after a connection that broke at once")
	h.Connected()
	h.connected = h.connected.Add(-2 * time.Second)
	_, pause = h.Next()
	assert.False(t, pause, "after a connection that lasted")
	_, pause = h.Next()
	assert.True(t, pause, "after a try that failed")
}

// TestRounds: each member comes once, by its name, before the client pauses. One that
// the client was connected to comes last.
func TestRounds(t *testing.T) {
	h := &hosts{}
	names := []string{"a.invalid:1", "b.invalid:1", "c.invalid:1"}
	require.NoError(t, h.Init(names), "no name is looked up")
	require.Equal(t, 3, h.Len())
	for round := range 3 {
		for i, name := range names {
			server, pause := h.Next()
			assert.Equal(t, name, server)
			assert.Equal(t, round > 0 && i == 0, pause, "pause before %s in round %d", name, round)
		}
	}
	h.Connected() // to c
	for i, want := range []bool{false, false, true} {
		server, pause := h.Next()
		assert.Equal(t, names[i], server)
		assert.Equal(t, want, pause, server)
	}
}

// nowhere is an address that nothing listens at. A port that was free a moment ago may be
// another test's by now.
const nowhere = "localhost:1"

// TestDialLooksUp: a dial finds the address of a name that serves, and says why it
// finds none.
func TestDialLooksUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for range 20 { // localhost may have another address too
		c, err := dialHost("tcp", "localhost:"+port, time.Second)
		require.NoError(t, err)
		c.Close()
	}
	require.NoError(t, l.Close())
	_, err = dialHost("tcp", nowhere, time.Second)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = dialHost("tcp", "none.invalid:"+port, time.Second)
	var lookup *net.DNSError
	assert.ErrorAs(t, err, &lookup)
}

// TestOpenSaysWhy: where nothing listens the error says so.
func TestOpenSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := Open("zk://" + nowhere)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestUntilServed: a call is repeated with a pause while no server serves, and not
// after the time that there is for it.
func TestUntilServed(t *testing.T) {
	for name, fails := range map[string]error{"no server": zk.ErrNoServer, "broken": fmt.Errorf("x: %w", zk.ErrConnectionClosed)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			calls := 0
			f := func() error {
				time.Sleep(time.Millisecond)
				if calls++; calls > 5 {
					return zk.ErrNoAuth
				}
				return fails
			}
			assert.ErrorIs(t, untilServed(ctx, f), zk.ErrNoAuth, name)
			calls = -1000
			began := time.Now()
			err := untilServed(ctx, f)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.ErrorIs(t, err, fails, name)
			assert.Less(t, time.Since(began), 10*time.Second, name)
			synctest.Wait()
			assert.Less(t, calls, -500, "%s: tries in ten seconds", name)
		})
	}
}

// TestQuota: a server that enforces a quota refuses for certain.
func TestQuota(t *testing.T) {
	assert.ErrorIs(t, outcome(fmt.Errorf("unknown error: %v", zk.ErrCode(-125))), store.ErrRefused)
	assert.NotErrorIs(t, outcome(fmt.Errorf("unknown error: %v", zk.ErrCode(-122))), store.ErrRefused)
}
