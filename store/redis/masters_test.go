package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// Replicas have died, which the client does not notice. List reads the masters.
func TestListBesideDeadReplicas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	locks := open(t, cluster.URL())
	var names []string
	for i := range 3 {
		names = append(names, nameOfNode(cluster, i))
		_, err := locks.Acquire(bounded(t), long(want(names[i], i)))
		require.NoError(t, err)
	}
	var c rueidis.Client
	until(t, "a client knows the replicas", func() bool { // the servers tell of those that have data
		var err error
		c, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs()[:3]})
		require.NoError(t, err)
		if len(c.Nodes()) == len(cluster.Nodes) {
			return true
		}
		c.Close()
		return false
	})
	t.Cleanup(c.Close)
	s := newStore(t, c)
	for _, replica := range cluster.Nodes[3:] {
		replica.Kill()
	}
	for range 10 { // each asks another node first
		found, err := s.List(bounded(t))
		require.NoError(t, err)
		require.ElementsMatch(t, names, found)
	}
}

// A master joins after the client has learned the masters, and gets a slot with a lock.
func TestListFindsALateMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	name := nameOfNode(cluster, 2)
	slot, late := redis.Slot(redis.LockKey(name)), cluster.Nodes[2]
	const first, last = "10922", "16383"                  // its slots
	for _, node := range slices.Backward(cluster.Nodes) { // the others learn from it
		node.MustDo("CLUSTER", "DELSLOTSRANGE", first, last)
	}
	cluster.Nodes[0].MustDo("CLUSTER", "ADDSLOTSRANGE", first, last)
	until(t, "the cluster is of two masters", func() bool {
		for _, node := range cluster.Nodes {
			if !strings.Contains(node.MustDo("CLUSTER", "INFO"), "cluster_state:ok") {
				return false
			}
		}
		return true
	})
	url := "redis://" + strings.Join(cluster.Addrs()[:2], ",")
	s := open(t, url)
	_, err := s.Acquire(bounded(t), long(want(name, 1)))
	require.NoError(t, err)
	cluster.BeginMove(slot, late)
	for cluster.MoveKeys(slot, late, 100) > 0 {
	}
	cluster.EndMove(slot, late)
	names, err := s.List(bounded(t))
	require.NoError(t, err)
	require.Equal(t, []string{name}, names)

	// One that stays unknown is an error.
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = newStore(t, blind{c, late.Addr}).List(bounded(t))
	require.ErrorContains(t, err, late.Addr)
}

// blind does not know one of the nodes.
type blind struct {
	rueidis.Client
	hidden string
}

func (b blind) Nodes() map[string]rueidis.Client {
	nodes := b.Client.Nodes()
	delete(nodes, b.hidden)
	return nodes
}
