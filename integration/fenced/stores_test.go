package fenced

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// keeper is the store of the locks, of which the data knows nothing.
type keeper struct {
	direct, wire string // URLs, without and with a proxy
	cut          func() // cuts the connections of the proxy
	// unsubscribe kills the connections that tell of wake-ups and returns how many there
	// were; nil where these are cut with the others.
	unsubscribe func(t *testing.T) int64
	planned     func() int    // calls that were cut off one by one; nil: none
	least       time.Duration // no lease or place is shorter
}

// keepers are the stores. data is the server of the data, on which Redis keeps the locks too.
var keepers = []struct {
	name  string
	slow  bool // so that a test is content with a part
	start func(t *testing.T, data *redistest.Server) *keeper
}{
	{"redis", false, onRedis}, {"quorum", true, onQuorum}, {"etcd", true, onEtcd}, {"postgres", true, onPostgres}, {"zookeeper", true, onZookeeper},
}

func onRedis(t *testing.T, data *redistest.Server) *keeper {
	p := redistest.StartProxy(t, data.Addr)
	p.Plan(func(call int, _ []string) redistest.Action {
		switch call % 500 {
		case 0:
			return redistest.CutBefore
		case 250:
			return redistest.CutReply
		}
		return redistest.Pass
	})
	return &keeper{
		direct: data.URL(), wire: p.URL(), cut: p.Cut,
		unsubscribe: func(t *testing.T) int64 {
			t.Helper()
			n, err := data.Do("CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			return n
		},
		planned: func() int { return p.Calls() / 250 },
	}
}

// onQuorum has the connections to all nodes cut at once.
func onQuorum(t *testing.T, _ *redistest.Server) *keeper {
	var nodes []*keeper
	var direct, wires []string
	for range 3 {
		node := onRedis(t, redistest.Start(t))
		nodes, direct, wires = append(nodes, node), append(direct, node.direct), append(wires, node.wire)
	}
	return &keeper{
		direct: strings.Join(direct, " "), wire: strings.Join(wires, " "),
		cut: func() {
			for _, node := range nodes {
				node.cut()
			}
		},
		unsubscribe: func(t *testing.T) (n int64) {
			for _, node := range nodes {
				n += node.unsubscribe(t)
			}
			return n
		},
		planned: func() (n int) {
			for _, node := range nodes {
				n += node.planned()
			}
			return n
		},
	}
}

func onEtcd(t *testing.T, _ *redistest.Server) *keeper {
	server := etcdtest.Start(t, 1)
	p := proxytest.Start(t, server.Members[0].Endpoint)
	return &keeper{direct: server.URL(), wire: "etcd://" + p.Addr, cut: p.Cut, least: time.Second}
}

func onPostgres(t *testing.T, _ *redistest.Server) *keeper {
	server := postgrestest.Start(t)
	url := stores.NewDatabase(t, server)
	p := proxytest.Start(t, server.Addr)
	return &keeper{direct: url, wire: strings.Replace(url, server.Addr, p.Addr, 1), cut: p.Cut}
}

func onZookeeper(t *testing.T, _ *redistest.Server) *keeper {
	server := zookeepertest.Start(t, 1)
	p := proxytest.Start(t, server.Members[0].Addr)
	return &keeper{direct: server.URL(), wire: "zk://" + p.Addr, cut: p.Cut}
}

// everywhere runs a test over each store, with what it does there.
func everywhere(t *testing.T, small, large size, run func(t *testing.T, s size, data *redistest.Server, on *keeper)) {
	for _, k := range keepers {
		t.Run(k.name, func(t *testing.T) {
			s := locktest.Prove(small, large)
			if k.slow {
				s.changes = max(s.changes/10, 50)
			}
			data := redistest.Start(t)
			run(t, s, data, k.start(t, data))
		})
	}
}
