package real

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

const (
	zookeeperOne   = "zookeeper1"
	zookeeperThree = "zookeeper3"

	// A session is as short as it can be, so that it ends during faults, and so that
	// a member that stands still is left.
	zookeeperSession = "?session_timeout=1s"
)

var onZookeeper = []string{zookeeperOne, zookeeperThree}

func (s *site) startZookeeper(t testing.TB, members int) {
	t.Helper()
	s.zookeeper = zookeepertest.Start(t, members)
	var hosts []string
	for _, m := range s.zookeeper.Members {
		hosts = append(hosts, m.Addr)
	}
	c, _, err := zk.Connect(hosts, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s.nodes = c
	looking, err := zookeeper.Open(s.zookeeper.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { looking.Close() })
	s.looking = looking
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// zookeeperURL is what a worker opens, on a wire to each member.
func (s *site) zookeeperURL(worker int) string {
	var addrs []string
	for _, m := range s.zookeeper.Members {
		p := proxytest.Start(s.t, m.Addr)
		s.wires[worker] = append(s.wires[worker], p)
		addrs = append(addrs, p.Addr)
	}
	return "zk://" + strings.Join(addrs, ",") + zookeeperSession
}

// leftAtZookeeper are the nodes. What has expired goes when it is looked at.
func (s *site) leftAtZookeeper() (all []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.looking.(store.Lister).List(ctx); err != nil {
		return nil, err
	}
	const folder = "/dlock/locks"
	s.nodes.Sync(folder)
	nodes, _, err := s.nodes.Children(folder)
	if err != nil && err != zk.ErrNoNode {
		return nil, err
	}
	for _, node := range nodes {
		all = append(all, "node "+node)
	}
	return all, nil
}

// Faults of ZooKeeper: rows 115 and 116 of the catalogue, and members.
var zookeeperFaults = []kind{
	{name: "member paused", slow: true, prolongs: true, on: onZookeeper, make: func(h *history) trouble {
		lasts := h.between(h.plan.TTL/2, h.plan.TTL*3/2)
		var m *zookeepertest.Member
		return trouble{
			lasts: lasts,
			begin: func() { m = h.zookeeperMember(); m.Pause() },
			end:   func() { m.Resume() },
			bit:   h.disturbed(lasts / 4),
		}
	}},
	{name: "leading member killed", slow: true, prolongs: true, on: onZookeeper, make: func(h *history) trouble {
		var m *zookeepertest.Member
		return trouble{
			lasts: h.between(50*time.Millisecond, h.plan.TTL),
			begin: func() { m = h.site.zookeeper.Leader(); m.Kill() },
			end:   func() { m.Launch() },
			bit:   h.disturbed(50 * time.Millisecond),
		}
	}},
}

// zookeeperMember is the leader as often as not.
func (h *history) zookeeperMember() *zookeepertest.Member {
	if len(h.site.zookeeper.Members) == 1 || h.another().IntN(2) == 0 {
		return h.site.zookeeper.Leader()
	}
	return h.site.zookeeper.Follower()
}
