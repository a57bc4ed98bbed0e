package etcdtest

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func through(t *testing.T, p *Proxy) *clientv3.Client {
	client, err := connect(p.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestProxyForwardsAndCuts(t *testing.T) {
	c := Start(t, 1)
	p := StartProxy(t, c.Members[0].Endpoint)
	require.Equal(t, "etcd://"+p.Addr+"/", p.URL())
	client := through(t, p)
	require.NoError(t, put(client, "x", long))
	events := client.Watch(context.Background(), "a", clientv3.WithCreatedNotify())
	require.True(t, (<-events).Created)
	p.Cut()
	require.NoError(t, put(c.Client(t), "a", long))
	require.Len(t, (<-events).Events, 1, "the client resumes its watch")
	write(c, client, "b")
}

func TestBlackholeSwallowsUntilItGoesOff(t *testing.T) {
	c := Start(t, 1)
	p := StartProxy(t, c.Members[0].Endpoint)
	client := through(t, p)
	require.NoError(t, put(client, "a", long))
	p.Blackhole(true)
	require.ErrorIs(t, put(client, "b", short), context.DeadlineExceeded)
	require.False(t, has(t, c.Client(t), "b"))
	c.Members[0].Restart()
	require.ErrorIs(t, put(client, "c", short), context.DeadlineExceeded, "nobody has heard of the restart")
	p.Blackhole(false)
	write(c, client, "d")
	require.True(t, has(t, c.Client(t), "a"))
}

func TestBlackholeLeavesIdleConnectionsAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := StartProxy(t, l.Addr().String())
	near, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	defer near.Close()
	far, err := l.Accept()
	require.NoError(t, err)
	defer far.Close()
	say := func(from, to net.Conn, text string) {
		t.Helper()
		_, err := io.WriteString(from, text)
		require.NoError(t, err)
		got := make([]byte, len(text))
		require.NoError(t, to.SetReadDeadline(time.Now().Add(long)))
		_, err = io.ReadFull(to, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	say(near, far, "before")
	p.Blackhole(true)
	p.Blackhole(false)
	say(near, far, "after")
	say(far, near, "back")

	p.Blackhole(true)
	require.NoError(t, far.Close())
	require.NoError(t, near.SetReadDeadline(time.Now().Add(short)))
	_, err = near.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout", "the close is lost too")
	p.Blackhole(false)
	require.NoError(t, near.SetReadDeadline(time.Now().Add(long)))
	_, err = near.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "timeout")
}

func TestProxyWithoutServerClosesConnections(t *testing.T) {
	c := Start(t, 1)
	p := StartProxy(t, c.Members[0].Endpoint)
	client := through(t, p)
	c.Members[0].Kill()
	require.Error(t, put(client, "a", short))
	c.Members[0].Restart()
	write(c, client, "a")
}
