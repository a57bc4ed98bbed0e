package zookeeper_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

func TestFaultsOfAllStores(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	faulttest.Run(t, func(t *testing.T) *faulttest.Site { return alike(t, e) })
}

// alike is the server with a root of the test's own.
func alike(t *testing.T, e *zookeepertest.Ensemble) *faulttest.Site {
	t.Parallel()
	root := strings.ReplaceAll(t.Name(), "/", "_")
	m := e.Members[0]
	url := func(addr string) string { return "zk://" + addr + "/" + root }
	direct, c := open(t, url(m.Addr)), connect(t, e)
	return &faulttest.Site{
		T: t, Addr: m.Addr, URL: url, Direct: direct,
		Open: func(url string) store.Store { return open(t, url) },
		Empty: func(within time.Duration) {
			locktest.Poll(t, "no node left", within, func() bool {
				direct.List(t.Context())
				return len(children(t, c, "/"+root+"/locks")) == 0
			})
		},
		Lease: 2 * time.Second,
		Lag:   50 * time.Millisecond,
		Doubt: 11 * time.Millisecond, // half of the margin that the holder would have kept
	}
}
