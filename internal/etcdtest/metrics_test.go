package etcdtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatchersAreCounted(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	m := c.Members[0]
	require.Zero(t, m.Watchers())
	ctx, cancel := context.WithCancel(context.Background())
	require.True(t, (<-c.Client(t).Watch(ctx, "a", clientv3.WithCreatedNotify())).Created)
	require.Equal(t, 1, m.Watchers())
	cancel()
	c.await("the watch has ended", func() bool { return m.Watchers() == 0 })
}

func TestRestartEmptyBeginsAnew(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	client := c.Client(t)
	require.NoError(t, put(client, "a", long))
	c.Members[0].RestartEmpty()
	require.False(t, has(t, c.Client(t), "a"))
	write(c, client, "b")
	reply, err := client.Get(context.Background(), "b")
	require.NoError(t, err)
	require.EqualValues(t, 2, reply.Header.Revision)
}
