package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const slots = 16384

// Cluster is a Redis cluster of this test.
type Cluster struct {
	// Nodes are the three masters, and if there are replicas, the replica of each
	// in the same order. After a failover they are still in this order.
	Nodes []*Server

	t   testing.TB
	ids map[*Server]string
}

// StartCluster starts three masters that share the slots evenly, each with one
// replica if so wanted, with extra lines of redis.conf. It blocks until all
// nodes say cluster_state:ok and all replicas have their masters' data, which
// takes about 3 s: Redis has a master wait 2 s before it takes writes.
//
// A node is thought dead after 2 s. Replicas stay with their masters, and a
// master that lost its last slot stays a master.
func StartCluster(t testing.TB, replicas bool, config ...string) *Cluster {
	t.Helper()
	const masters = 3
	c := &Cluster{t: t, ids: map[*Server]string{}}
	n := masters
	if replicas {
		n *= 2
	}
	for i := range n {
		s := launch(t, clusterNode(config))
		id := s.MustDo("CLUSTER", "MYID")
		c.Nodes = append(c.Nodes, s)
		c.ids[s] = id
		s.MustDo("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			// Before they meet: a node that has no slots yet counts as one of a
			// minority, and stays that for a node timeout.
			s.MustDo("CLUSTER", "ADDSLOTSRANGE",
				strconv.Itoa(i*slots/masters), strconv.Itoa((i+1)*slots/masters-1))
		}
		for _, other := range c.Nodes[:i] {
			s.MustDo("CLUSTER", "MEET", "127.0.0.1", other.port, other.busPort())
		}
	}
	for i, replica := range c.Nodes[masters:] {
		master := c.ids[c.Nodes[i]]
		replica.await("it knows its master", func() bool {
			return replica.Do("CLUSTER", "REPLICATE", master).Error() == nil
		})
	}
	for _, s := range c.Nodes {
		s.await("the cluster is up", func() bool {
			view := c.view(s)
			return len(view) == n && strings.Contains(s.MustDo("CLUSTER", "INFO"), "cluster_state:ok") &&
				c.knowsReplicas(view, n-masters)
		})
	}
	for _, s := range c.Nodes[masters:] {
		s.await("it has the data of its master", s.linkUp)
	}
	return c
}

func clusterNode(config []string) kind {
	return kind{lines: func(port, bus string) []string {
		return append(append(standalone(port),
			"cluster-enabled yes",
			"cluster-config-file nodes.conf",
			"cluster-node-timeout 2000",
			fmt.Sprint("cluster-port ", bus),
			"cluster-allow-replica-migration no",
		), config...)
	}}
}

func (s *Server) busPort() string {
	return strings.Fields(s.MustDo("CONFIG", "GET", "cluster-port"))[1]
}

func (s *Server) linkUp() bool {
	return s.replication("master_link_status:up")
}

// replication reports whether INFO replication has the text. An error is a no: a
// sentinel that makes a node a replica closes its connections.
func (s *Server) replication(text string) bool {
	info, err := s.Do("INFO", "replication").ToString()
	return err == nil && strings.Contains(info, text)
}

func (c *Cluster) knowsReplicas(view []clusterLine, want int) bool {
	n := 0
	for _, l := range view {
		if l.master != "" {
			n++
		}
	}
	return n == want
}

// URL lists the first three nodes:
// "redis://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3?cluster=true".
func (c *Cluster) URL() string {
	return "redis://" + strings.Join(c.Addrs()[:3], ",") + "?cluster=true"
}

// Addrs lists the addresses of all nodes in the order of Nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}
