package zookeeper

import (
	"context"
	"fmt"
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
	h := &hosts{DNSHostProvider: zk.NewDNSHostProvider()}
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
			assert.ErrorIs(t, untilServed(ctx, f), context.DeadlineExceeded, name)
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
