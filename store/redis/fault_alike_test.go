package redis_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

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

func TestFault08ReleaseLost(t *testing.T)       { alike(t).ReleaseLost() }
func TestFault48HolderKilled(t *testing.T)      { alike(t).HolderKilled() }
func TestFault49HeadOfQueueKilled(t *testing.T) { alike(t).HeadOfQueueKilled() }
func TestFault50WokenWaiterKilled(t *testing.T) { alike(t).WokenWaiterKilled() }
func TestFault70ReleaseAfterTheContextHasEnded(t *testing.T) {
	alike(t).ReleaseAfterTheContextHasEnded()
}
func TestFault78ProcessKilled(t *testing.T)    { alike(t).ProcessKilled() }
func TestFault81ReaderKilled(t *testing.T)     { alike(t).ReaderKilled() }
func TestFault84ForcedRelease(t *testing.T)    { alike(t).ForcedRelease() }
func TestFault85AnyName(t *testing.T)          { alike(t).AnyName() }
func TestFault85RenewalOfAnyName(t *testing.T) { alike(t).RenewalOfAnyName() }
func TestFault86RefusedTTL(t *testing.T)       { alike(t).RefusedTTL() }
