package redistest

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := StartSentinel(t, 2)
	t.Log("sentinels up after", time.Since(began))
	require.Len(t, c.Nodes, 3)
	require.Len(t, c.Sentinels, 3)
	first := c.Master()
	require.Same(t, c.Nodes[0], first)
	first.MustDo("SET", "a", "1")
	first.MustDo("WAIT", "2", "5000")

	var addrs []string
	for _, s := range c.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: addrs, DisableCache: true,
		Sentinel: rueidis.SentinelOption{MasterSet: "mymaster"},
	})
	require.NoError(t, err)
	defer client.Close()
	port := func() string {
		m, err := client.Do(context.Background(), client.B().Arbitrary("CONFIG", "GET", "port").ReadOnly()).AsStrMap()
		require.NoError(t, err)
		return "127.0.0.1:" + m["port"]
	}
	require.Equal(t, first.Addr, port())
	require.Zero(t, c.Epoch())

	ofSentinels := func() []string {
		return regexp.MustCompile(`(?m)^id=\d+ .* name=sentinel-\S+-pubsub`).FindAllString(first.MustDo("CLIENT", "LIST", "TYPE", "pubsub"), -1)
	}
	first.await("all sentinels listen to it", func() bool { return len(ofSentinels()) == 3 })
	first.KillClients("pubsub") // of which there may be one, of the client above
	first.KillClients("normal")
	require.Len(t, ofSentinels(), 3)

	began = time.Now()
	second := c.Failover()
	t.Log("failover took", time.Since(began))
	require.NotSame(t, first, second)
	require.Positive(t, c.Epoch())
	require.Equal(t, "1", second.MustDo("GET", "a"))
	require.Eventually(t, func() bool { return port() == second.Addr }, 5*time.Second, 10*time.Millisecond)
	first.await("the old master follows", first.linkUp)
	t.Log("old master demoted after", time.Since(began))

	began = time.Now()
	third := c.Failover()
	t.Log("second failover took", time.Since(began))
	require.NotSame(t, second, third)
	// One that dies while the others are not its replicas yet may have no heir.
	second.await("the old master follows", second.linkUp)

	began = time.Now()
	third.Kill()
	c.Sentinels[0].await("they notice that the master is dead", func() bool { return c.Master() != third })
	t.Log("automatic failover took", time.Since(began))
}

func TestSentinelWithOneReplica(t *testing.T) {
	t.Parallel()
	c := StartSentinel(t, 1)
	require.Same(t, c.Nodes[1], c.Failover())
	require.Same(t, c.Nodes[1], c.Master())
}

// A sentinel that could not run for a while trusts its eyes again before tests give
// up on it.
func TestSentinelThatStalled(t *testing.T) {
	t.Parallel()
	c := StartSentinel(t, 1)
	c.Sentinels[0].Pause()
	time.Sleep(3 * time.Second)
	c.Sentinels[0].Resume()
	require.Same(t, c.Nodes[1], c.Failover())
}
