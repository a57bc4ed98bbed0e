package matrix

import (
	"testing"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

type zookeeperServer struct{ *zookeepertest.Ensemble }

func startZookeeper(t *testing.T) server { return zookeeperServer{zookeepertest.Start(t, 1)} }

func (s zookeeperServer) near(t *testing.T) store.Store {
	t.Helper()
	h, err := zookeeper.Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func (s zookeeperServer) far(t *testing.T) (store.Store, wire) {
	t.Helper()
	w := newCallsWire(s.near(t))
	return w, w
}
