package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// open returns a handle with connections of its own, closed at the end of t.
func open(t testing.TB, url string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// suite is the conformance suite for a cluster. Its server ends a lease up to
// half a second after its time, and begins that with a request of its own.
func suite(c *etcdtest.Cluster) conformance.Suite {
	return conformance.Suite{
		New:  func(t testing.TB) store.Store { return open(t, c.URL()) },
		Peer: func(t testing.TB, _ store.Store) store.Store { return open(t, c.URL()) },
		Plant: func(t testing.TB, _ store.Store, name string) {
			if _, err := c.Client(t).Put(t.Context(), etcd.DirOf(name)+"not an id", "not a lock"); err != nil {
				t.Fatal(err)
			}
		},
		Lag: 3 * time.Second,
	}
}

func TestConformance(t *testing.T) { conformance.RunSuite(t, suite(etcdtest.Start(t, 1))) }

func TestConformanceCluster(t *testing.T) { conformance.RunSuite(t, suite(etcdtest.Start(t, 3))) }
