package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

const slotOfA = 15495 // CLUSTER KEYSLOT a, and of {a}...

func TestClusterMovesASlotWithItsKeys(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := StartCluster(t, false)
	t.Log("cluster up after", time.Since(began))
	require.Len(t, c.Nodes, 3)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
	require.NoError(t, err)
	defer client.Close()
	set := func(key string) {
		require.NoError(t, client.Do(context.Background(), client.B().Set().Key(key).Value("1").Build()).Error())
	}
	for _, key := range []string{"a", "{a}1", "{a}2"} {
		set(key)
	}

	from, to := c.Master(slotOfA), c.Nodes[0]
	require.Same(t, c.Nodes[2], from)
	c.BeginMove(slotOfA, to)
	require.Equal(t, 2, c.MoveKeys(slotOfA, to, 2))
	require.Same(t, from, c.Master(slotOfA))
	require.Equal(t, "1", from.MustDo("CLUSTER", "COUNTKEYSINSLOT", "15495"))
	set("{a}3") // by ASK
	require.Equal(t, "3", to.MustDo("CLUSTER", "COUNTKEYSINSLOT", "15495"))
	require.Equal(t, 1, c.MoveKeys(slotOfA, to, 10))
	require.Equal(t, 0, c.MoveKeys(slotOfA, to, 10))
	c.EndMove(slotOfA, to)

	require.Same(t, to, c.Master(slotOfA))
	require.ErrorContains(t, from.Do("GET", "a").Error(), "MOVED 15495 "+to.Addr)
	require.Equal(t, "1", to.MustDo("GET", "a"))
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := StartCluster(t, true)
	t.Log("cluster with replicas up after", time.Since(began))
	require.Len(t, c.Nodes, 6)
	old := c.Master(slotOfA)
	old.MustDo("SET", "a", "1")
	require.Equal(t, "1", old.MustDo("WAIT", "1", "5000"))

	c.Failover(slotOfA)
	promoted := c.Master(slotOfA)
	require.Same(t, c.Nodes[5], promoted)
	require.Equal(t, "1", promoted.MustDo("GET", "a"))
	old.await("the old master follows", old.linkUp)

	promoted.Kill()
	c.Failover(slotOfA)
	require.Same(t, old, c.Master(slotOfA))
	require.Equal(t, "1", old.MustDo("GET", "a"))

	old = c.Master(0)
	old.Kill()
	require.Same(t, c.Nodes[3], c.Master(0), "the replica takes over by itself")
}
