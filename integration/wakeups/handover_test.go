package wakeups

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// All connections that subscribe are killed, by the server, while locks go from
// hand to hand. Nobody is left waiting for a message that was lost.
func TestRedisSubscribersKilled(t *testing.T) {
	killSubscribers(t, []*redistest.Server{redistest.Start(t)}, locktest.Prove(2000, 100_000), locktest.Prove(20, 1000))
}

// The same for a quorum, at all nodes. It has no order among those who wait, so a hand-over is one to anybody.
func TestQuorumSubscribersKilled(t *testing.T) {
	killSubscribers(t, startMasters(t), locktest.Prove(1000, 50_000), locktest.Prove(10, 500))
}

func killSubscribers(t *testing.T, servers []*redistest.Server, goal, kills int) {
	var clients []*dlock.Client
	for range runners {
		clients = append(clients, locktest.NewClient(t, stores.OpenFor(t, urlOf(servers)), asleep))
	}
	r := newRelay(newPulse(t, ping(servers)), goal)
	r.run(t, clients, kills, func() (n int) {
		for _, server := range servers {
			killed, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
			if err != nil {
				t.Error(err)
				return 1
			}
			n += int(killed)
		}
		if n > 0 {
			r.killed()
		}
		return n
	})
}

// The same for etcd, where watches share the one connection of a client with all
// else: one client after the other has its connection cut.
func TestEtcdWatchersCut(t *testing.T) {
	server := etcdtest.Start(t, 1)
	admin := server.Client(t)
	beat := func() error {
		_, err := admin.Get(context.Background(), "pulse")
		return err
	}
	r := newRelay(newPulse(t, beat), locktest.Prove(1000, 20_000))
	r.cutWires(t, server.Members[0].Endpoint, "etcd://", locktest.Prove(10, 200))
}

// The same for PostgreSQL, where the connection that listens is one of several.
func TestPostgresListenersKilled(t *testing.T) {
	server := postgrestest.Start(t)
	url := stores.NewDatabase(t, server)
	var clients []*dlock.Client
	for range runners {
		clients = append(clients, locktest.NewClient(t, stores.OpenFor(t, url), asleep))
	}
	admin := connect(t, url)
	r := newRelay(newPulse(t, beatOf(t, url)), locktest.Prove(1000, 20_000))
	r.run(t, clients, locktest.Prove(10, 200), func() (killed int) {
		// Of a backend the activity is its last statement, which is the one that listens.
		err := admin.QueryRow(context.Background(), `SELECT count(pg_terminate_backend(pid))
			FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND pid <> pg_backend_pid()`).Scan(&killed)
		if err != nil {
			t.Error(server.Addr, err)
			return 1
		}
		if killed > 0 {
			r.killed()
		}
		return killed
	})
}

// The same for ZooKeeper, where watches share the one connection of a session with all
// else.
func TestZookeeperWatchersCut(t *testing.T) {
	server := zookeepertest.Start(t, 1)
	r := newRelay(newPulse(t, lookAt(t, server.URL())), locktest.Prove(400, 10_000))
	r.lost = lostOnZookeeper
	r.cutWires(t, server.Members[0].Addr, "zk://", locktest.Prove(5, 100))
}

// cutWires hands locks over between clients, each on a wire of its own, and cuts one wire
// after the other.
func (r *relay) cutWires(t *testing.T, addr, scheme string, kills int) {
	var clients []*dlock.Client
	var proxies []*proxytest.Proxy
	for range runners {
		p := proxytest.Start(t, addr)
		proxies = append(proxies, p)
		clients = append(clients, locktest.NewClient(t, stores.OpenFor(t, scheme+p.Addr), asleep))
	}
	n := 0
	r.run(t, clients, kills, func() int {
		proxies[n%runners].Cut()
		n++
		r.killed()
		return 1
	})
}
