package wakeups

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
)

// All connections that subscribe are killed, by the server, while locks go from
// hand to hand. Nobody is left waiting for a message that was lost.
func TestRedisSubscribersKilled(t *testing.T) {
	server := redistest.Start(t)
	var clients []*dlock.Client
	for range runners {
		clients = append(clients, locktest.NewClient(t, openStore(t, server.URL()), asleep))
	}
	server.Client() // connects, which only this goroutine may have fail
	r := newRelay(newPulse(t, func() error { return server.Do("PING").Error() }), prove(2000, 100_000))
	r.run(t, clients, prove(20, 1000), func() int {
		killed, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
		if err != nil {
			t.Error(err)
			return 1
		}
		if killed > 0 {
			r.killed()
		}
		return int(killed)
	})
}

// The same for etcd, where watches share the one connection of a client with all
// else: one client after the other has its connection cut.
func TestEtcdWatchersCut(t *testing.T) {
	server := etcdtest.Start(t, 1)
	var clients []*dlock.Client
	var proxies []*etcdtest.Proxy
	for range runners {
		p := etcdtest.StartProxy(t, server.Members[0].Endpoint)
		proxies = append(proxies, p)
		clients = append(clients, locktest.NewClient(t, openStore(t, p.URL()), asleep))
	}
	admin := server.Client(t)
	r := newRelay(newPulse(t, func() error {
		_, err := admin.Get(context.Background(), "pulse")
		return err
	}), prove(1000, 20_000))
	n := 0
	r.run(t, clients, prove(10, 200), func() int {
		proxies[n%runners].Cut()
		n++
		r.killed()
		return 1
	})
}
