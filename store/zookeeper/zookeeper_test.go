package zookeeper_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// TestConformance: the whole contract, on one server.
func TestConformance(t *testing.T) { conform(t, zookeepertest.Start(t, 1)) }

func conform(t *testing.T, e *zookeepertest.Ensemble) {
	t.Helper()
	c := connect(t, e)
	var gates sync.Map // of proxies, by handle
	conformance.RunSuite(t, conformance.Suite{
		New: func(t testing.TB) store.Store {
			p := startDeafProxy(t, e.Members[0].Addr)
			s := opened(t, "zk://"+p.Addr)
			gates.Store(s, &p.gate)
			return s
		},
		Peer: func(t testing.TB, _ store.Store) store.Store { return opened(t, e.URL()) },
		Plant: func(t testing.TB, _ store.Store, name string) {
			if _, err := c.Create(pathOf(name), []byte("a value of another program"), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		},
		Stall: func(_ testing.TB, s store.Store) (resume func()) {
			gate, _ := gates.Load(s)
			gate.(*sync.RWMutex).Lock()
			return gate.(*sync.RWMutex).Unlock
		},
		Footprint: func(store.Store) int { return len(children(t, c, "/dlock/locks")) },
		TTL:       400 * time.Millisecond,
	})
}

// urlVar is where the processes of TestTorture find the server.
const urlVar = "DLOCK_TEST_ZOOKEEPER"

// TestTorture: processes that are killed leave no lock behind, and never two
// hold one lock.
func TestTorture(t *testing.T) {
	conformance.Torture(t, func(t testing.TB) store.Store {
		url := os.Getenv(urlVar)
		if url == "" {
			url = zookeepertest.Start(t, 1).URL()
			t.(*testing.T).Setenv(urlVar, url)
		}
		return opened(t, url)
	})
}

// opened opens a handle that the suite closes.
func opened(t testing.TB, url string) *zookeeper.Store {
	t.Helper()
	s, err := zookeeper.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
