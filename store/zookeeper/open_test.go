package zookeeper

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
