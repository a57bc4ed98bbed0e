package redistest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

const (
	masterName = "mymaster"
	sentinels  = 3
)

// Sentinel is a master with replicas and three sentinels of this test.
type Sentinel struct {
	Nodes     []*Server // the first master, then its replicas
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts a master, replicas of it and three sentinels that watch
// them as "mymaster" with a quorum of 2; config is extra lines of redis.conf for
// the master and the replicas. It blocks until all sentinels know each other and
// the replicas, and the replicas have the data of the master.
//
// A node is thought dead after 1 s, a failover after 3 s. To make tests shorter
// the sentinels tell each other news every 200 ms, not every 2 s, ask the nodes
// for theirs every second, not every 10 s, and after a stall of their own of more
// than 2 s they do nothing for a second, not for 30 s.
func StartSentinel(t testing.TB, replicas int, config ...string) *Sentinel {
	t.Helper()
	c := &Sentinel{t: t}
	master := Start(t, config...)
	c.Nodes = []*Server{master}
	for range replicas {
		c.Nodes = append(c.Nodes, launch(t, kind{lines: func(port, _ string) []string {
			return append(append(standalone(port), fmt.Sprint("replicaof 127.0.0.1 ", master.port)), config...)
		}}))
	}
	master.await("its replicas are there", func() bool {
		return strings.Count(master.MustDo("INFO", "replication"), "state=online") == replicas
	})
	for _, s := range c.Nodes[1:] {
		s.await("it has the data of its master", s.linkUp)
	}
	for range sentinels {
		s := launch(t, sentinelOf(master))
		s.MustDo("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "1000", "TILT-PERIOD", "1000")
		c.Sentinels = append(c.Sentinels, s)
	}
	for _, s := range c.Sentinels {
		s.await("it knows the other sentinels and the replicas", func() bool { return knowsAll(s, replicas) })
	}
	return c
}

func sentinelOf(master *Server) kind {
	return kind{
		// Not redis-sentinel, which is the same program but may not be installed.
		args: []string{"--sentinel"},
		lines: func(port, _ string) []string {
			return []string{
				fmt.Sprint("port ", port),
				"bind 127.0.0.1",
				"daemonize no",
				fmt.Sprint("sentinel monitor ", masterName, " 127.0.0.1 ", master.port, " 2"),
				"sentinel down-after-milliseconds " + masterName + " 1000",
				"sentinel failover-timeout " + masterName + " 3000",
				"sentinel parallel-syncs " + masterName + " 1",
			}
		},
	}
}

// knowsAll reports whether the sentinel has a link to all others.
func knowsAll(s *Server, replicas int) bool {
	info, err := s.Do("SENTINEL", "MASTER", masterName).AsStrMap()
	if err != nil || info["num-slaves"] != strconv.Itoa(replicas) ||
		info["num-other-sentinels"] != strconv.Itoa(sentinels-1) || info["flags"] != "master" {
		return false
	}
	for _, of := range []string{"REPLICAS", "SENTINELS"} {
		list, err := s.Do("SENTINEL", of, masterName).ToArray()
		if err != nil {
			return false
		}
		for _, m := range list {
			peer, err := m.AsStrMap()
			// Until its first INFO a replica is no candidate for a failover.
			if err != nil || strings.Contains(peer["flags"], "disconnected") ||
				of == "REPLICAS" && peer["master-link-status"] != "ok" {
				return false
			}
		}
	}
	return true
}

// URL is "redis://127.0.0.1:s1,127.0.0.1:s2,127.0.0.1:s3?master_set=mymaster",
// with the addresses of the sentinels.
func (c *Sentinel) URL() string {
	var addrs []string
	for _, s := range c.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return "redis://" + strings.Join(addrs, ",") + "?master_set=" + masterName
}

// Master returns the node that the first running sentinel says is the master,
// which may be dead for a second before the sentinels know. It does not wait.
func (c *Sentinel) Master() *Server {
	c.t.Helper()
	for _, s := range c.Sentinels {
		if s.Running() {
			return c.masterBy(s)
		}
	}
	c.t.Fatal("redistest: no sentinel runs that could name the master.")
	return nil
}

func (c *Sentinel) masterBy(s *Server) *Server {
	c.t.Helper()
	addr, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).AsStrSlice()
	if err != nil || len(addr) != 2 {
		c.t.Fatalf("redistest: the sentinel at %s does not name the master: %v", s.Addr, err)
	}
	for _, n := range c.Nodes {
		if n.Addr == net.JoinHostPort(addr[0], addr[1]) {
			return n
		}
	}
	c.t.Fatalf("redistest: the sentinel at %s names a stranger as the master: %v", s.Addr, addr)
	return nil
}

// Epoch grows with each failover that a running sentinel knows of, those that nobody
// ordered included. It is 0 before the first.
func (c *Sentinel) Epoch() (greatest int) {
	c.t.Helper()
	for _, s := range c.Sentinels {
		if !s.Running() {
			continue
		}
		info, err := s.Do("SENTINEL", "MASTER", masterName).AsStrMap()
		if err != nil {
			c.t.Fatalf("redistest: the sentinel at %s knows no master: %v", s.Addr, err)
		}
		epoch, err := strconv.Atoi(info["config-epoch"])
		if err != nil {
			c.t.Fatalf("redistest: the sentinel at %s has %q for an epoch", s.Addr, info["config-epoch"])
		}
		greatest = max(greatest, epoch)
	}
	return greatest
}

// Failover has the sentinels make another node the master and returns it. It
// blocks until that node says role:master and all running sentinels agree. The
// old master, if it runs, takes writes for some seconds longer, which are then
// lost; the sentinel that makes it a replica closes all its connections.
func (c *Sentinel) Failover() *Server {
	c.t.Helper()
	old := c.Master()
	var promoted *Server
	old.await("another node is the master", func() bool {
		leader := true
		for _, s := range c.Sentinels {
			if !s.Running() {
				continue
			}
			if leader {
				c.beginFailover(s, old)
				leader = false
			}
			by := c.masterBy(s)
			if by == old || promoted != nil && by != promoted {
				promoted = nil
				return false
			}
			promoted = by
		}
		return promoted != nil && promoted.Running() && promoted.replication("role:master")
	})
	return promoted
}

// beginFailover has the sentinel depose the master unless that is done or under
// way. It may refuse, as long as it thinks no replica good, and it may give up what
// it began, after failover-timeout.
func (c *Sentinel) beginFailover(s, old *Server) {
	c.t.Helper()
	info, err := s.Do("SENTINEL", "MASTER", masterName).AsStrMap()
	if err != nil {
		c.t.Fatalf("redistest: the sentinel at %s knows no master: %v", s.Addr, err)
	}
	if info["port"] == old.port && !strings.Contains(info["flags"], "failover_in_progress") {
		_ = s.Do("SENTINEL", "FAILOVER", masterName).Error()
	}
}
