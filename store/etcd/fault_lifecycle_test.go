package etcd_test

import (
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store/etcd"
)

// Many calls lose patience at a random moment and processes are killed. When
// their leases are over no key and no lease is left of them, and when the handles
// are closed no watch.
//
// It keeps the machine busy, so it does not run beside others.
func TestNothingIsLeftOfChurn(t *testing.T) {
	cancels, crashes := 1000, 5
	if os.Getenv("DLOCK_PROVE") != "" {
		cancels, crashes = 10_000, 100
	}
	o := dlock.Options{TTL: time.Second, StoreTimeout: 3 * time.Second}
	s := newSite(t, 1)
	var stores []*etcd.Store
	var clients []*dlock.Client
	for _, on := range []*etcd.Store{open(t, s.cluster.URL()), open(t, s.cluster.URL()), s.wire.store(t, s.cluster.Endpoints())} {
		stores, clients = append(stores, on), append(clients, locktest.NewClient(t, on, o))
	}
	locktest.ChurnAmongDeaths(t, clients, cancels, s.cluster.URL(), o.TTL, crashes)
	over := o.StoreTimeout + o.TTL + lag + locktest.Late // what had an unknown outcome is buried that late
	s.empty(over)
	locktest.Poll(t, "no lease left", over, func() bool { return s.leases() == 0 })
	for i, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stores[i].Close()
	}
	locktest.Poll(t, "no watch left", locktest.Soon, func() bool { return s.cluster.Members[0].Watchers() == 0 })
}

// A client that does not end its watches does not keep Close, nor the connections.
func TestCloseOfAClientThatHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	on := open(t, s.cluster.URL())
	on.HangClose(t)
	began := time.Now()
	on.Close()
	if took := time.Since(began); took > 3*time.Second+locktest.Late {
		t.Errorf("Close took %v", took)
	}
}
