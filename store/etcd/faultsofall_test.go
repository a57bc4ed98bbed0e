package etcd_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// lag is how much longer than its time the server may keep a lease: it looks
// every half second, and then has to agree on the end with the other members.
const lag = time.Second

// spare is how much longer than WaitTTL the lease of a place is.
const spare = time.Second

func TestFaultsOfAllStores(t *testing.T) { faulttest.Run(t, alike) }

// alike is a server for the tests of faults that are the same for all stores.
func alike(t *testing.T) *faulttest.Site {
	t.Parallel()
	s := newSite(t, 1)
	m := s.cluster.Members[0]
	return &faulttest.Site{
		T: t, Addr: m.Endpoint,
		URL:    func(addr string) string { return "etcd://" + addr },
		Open:   func(url string) store.Store { return open(t, url) },
		Direct: s.direct,
		Empty:  s.empty,
		Listen: func() { locktest.Poll(t, "a watch", locktest.Soon, func() bool { return m.Watchers() == 1 }) },
		Counts: func() (store.Store, func() int) {
			var sent atomic.Int32
			far := s.wire.store(t, s.cluster.Endpoints())
			s.wire.plan(func(string, int) action { sent.Add(1); return pass })
			return far, func() int { return int(sent.Load()) }
		},
		Lease: 3 * time.Second,
		Lag:   lag, Spare: spare, Floor: time.Second,
	}
}
