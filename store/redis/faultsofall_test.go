package redis_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

func TestFaultsOfAllStores(t *testing.T) {
	t.Parallel()
	faulttest.Run(t, alike)
}

// alike is a server for the tests of faults that are the same for all stores.
func alike(t *testing.T) *faulttest.Site {
	t.Parallel()
	s := newSite(t)
	return &faulttest.Site{
		T: t, Addr: s.server.Addr,
		URL:    func(addr string) string { return "redis://" + addr },
		Open:   func(url string) store.Store { return open(t, url) },
		Direct: s.direct,
		Empty:  s.empty,
		Listen: s.listens,
		Counts: func() (store.Store, func() int) {
			far := open(t, s.proxy.URL())
			s.on("", redistest.Pass)
			return far, s.proxy.Calls
		},
		Lease: 2 * time.Second,
		Lag:   50 * time.Millisecond,
	}
}
