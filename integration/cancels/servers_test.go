package cancels

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// server is one that can be brought down, with a wire to it.
type server struct {
	url, wire string // without a proxy, and through one
	downs     []down
	left      func() []string // what it keeps
	lazy      bool            // what has expired goes when somebody looks
	forgets   int             // after so many calls a handle has forgotten ids that are over
}

// down is a way for a server to be down.
type down struct {
	name       string
	begin, end func()
}

func startRedis(t *testing.T) *server {
	s := redistest.Start(t, "appendonly yes", "appendfsync always")
	p := redistest.StartProxy(t, s.Addr)
	s.Client() // connects, which only this goroutine may have fail
	return &server{
		url: s.URL(), wire: p.URL(), lazy: true,
		downs: []down{
			{"stands still", s.Pause, s.Resume},
			{"unreachable", func() { p.Blackhole(true) }, func() { p.Blackhole(false) }},
			{"killed", s.Kill, s.Restart},
		},
		left: func() (left []string) {
			for _, key := range strings.Fields(s.MustDo("KEYS", "*")) {
				// A counter of tokens, and the life of a quorum's node, last as long as the data.
				if !strings.HasSuffix(key, "}:token") && !strings.HasSuffix(key, "}:life") {
					left = append(left, "key "+key)
				}
			}
			for _, channel := range strings.Fields(s.MustDo("PUBSUB", "SHARDCHANNELS")) {
				left = append(left, "subscription to "+channel)
			}
			return left
		},
	}
}

// startQuorum has one node down, and then each in another way. What several nodes keep counts once: one may have a hold
// a little later than the others.
func startQuorum(t *testing.T) *server {
	nodes := []*server{startRedis(t), startRedis(t), startRedis(t)}
	all := &server{lazy: true, forgets: calls}
	var urls, wires []string
	for _, node := range nodes {
		urls, wires = append(urls, node.url), append(wires, node.wire)
	}
	all.url, all.wire = stores.DurableQuorum(urls...), stores.DurableQuorum(wires...)
	one := nodes[0].downs[0]
	one.name = "one node " + one.name
	all.downs = []down{one, {"no node answers", func() {
		for i, node := range nodes {
			node.downs[i].begin()
		}
	}, func() {
		for i, node := range nodes {
			node.downs[i].end()
		}
	}}}
	all.left = func() (left []string) {
		for _, node := range nodes {
			left = append(left, node.left()...)
		}
		slices.Sort(left)
		return slices.Compact(left)
	}
	return all
}

func startEtcd(t *testing.T) *server {
	cluster := etcdtest.Start(t, 1)
	m := cluster.Members[0]
	p := proxytest.Start(t, m.Endpoint)
	admin := cluster.Client(t)
	return &server{
		url: cluster.URL(), wire: "etcd://" + p.Addr,
		downs: []down{
			{"stands still", m.Pause, m.Resume},
			{"unreachable", func() { p.Blackhole(true) }, func() { p.Blackhole(false) }},
			{"killed", m.Kill, m.Restart},
		},
		left: func() (left []string) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			keys, err := admin.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return []string{err.Error()}
			}
			for _, kv := range keys.Kvs {
				left = append(left, "key "+string(kv.Key))
			}
			leases, err := admin.Leases(ctx)
			if err != nil {
				return []string{err.Error()}
			}
			for _, l := range leases.Leases {
				left = append(left, fmt.Sprintf("lease %x", l.ID))
			}
			if n := m.Watchers(); n > 0 {
				left = append(left, fmt.Sprint(n, " watches"))
			}
			return left
		},
	}
}

func startPostgres(t *testing.T) *server {
	s := postgrestest.Start(t)
	plain := stores.NewDatabase(t, s)
	// A pool that grows when it is busy would be taken for a leak.
	url := plain + "&pool_min_conns=2&pool_max_conns=2"
	p := proxytest.Start(t, s.Addr)
	direct, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { direct.Close() })
	return &server{
		url: url, wire: strings.Replace(url, s.Addr, p.Addr, 1), lazy: true,
		downs: []down{
			{"stands still", s.Pause, s.Resume},
			{"unreachable", func() { p.Blackhole(true) }, func() { p.Blackhole(false) }},
			{"killed", s.Crash, s.Launch},
		},
		left: func() (left []string) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c, err := pgx.Connect(ctx, plain)
			if err != nil {
				return strings.Split(strings.Repeat("unknown: "+err.Error()+"\n", 1000), "\n")
			}
			defer c.Close(ctx)
			names := func() (names []string, err error) {
				rows, _ := c.Query(ctx, "SELECT encode(name, 'escape') FROM dlock_locks")
				return pgx.CollectRows(rows, pgx.RowTo[string])
			}
			before, err := names()
			for i := 0; i < len(before) && err == nil; i++ {
				_, err = direct.Inspect(ctx, before[i]) // removes what has expired
			}
			if err == nil {
				left, err = names()
			}
			if err != nil {
				return strings.Split(strings.Repeat("unknown: "+err.Error()+"\n", 1000), "\n")
			}
			return left
		},
	}
}

func startZookeeper(t *testing.T) *server {
	e := zookeepertest.Start(t, 1)
	m := e.Members[0]
	p := proxytest.Start(t, m.Addr)
	const session = "?session_timeout=1s"
	direct, err := zookeeper.Open(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { direct.Close() })
	nodes, _, err := zk.Connect([]string{m.Addr}, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nodes.Close)
	return &server{
		url: e.URL() + session, wire: "zk://" + p.Addr + session, lazy: true,
		downs: []down{
			{"stands still", m.Pause, m.Resume},
			{"unreachable", func() { p.Blackhole(true) }, func() { p.Blackhole(false) }},
			{"killed", m.Kill, m.Launch},
		},
		left: func() (left []string) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := direct.List(ctx); err != nil { // looks at every name
				return strings.Split(strings.Repeat("unknown: "+err.Error()+"\n", 1000), "\n")
			}
			left, _, err := nodes.Children("/dlock/locks")
			if err != nil {
				return strings.Split(strings.Repeat("unknown: "+err.Error()+"\n", 1000), "\n")
			}
			return left
		},
	}
}

// silent is a logger for the client.
type silent struct{}

func (silent) Printf(string, ...any) {}
