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

// TestAlike are the tests of faults that are the same for all stores.
func TestAlike(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	for name, test := range map[string]func(*faulttest.Site){
		"Fault08ReleaseLost":                    (*faulttest.Site).ReleaseLost,
		"Fault48HolderKilled":                   (*faulttest.Site).HolderKilled,
		"Fault49HeadOfQueueKilled":              (*faulttest.Site).HeadOfQueueKilled,
		"Fault50WokenWaiterKilled":              (*faulttest.Site).WokenWaiterKilled,
		"Fault70ReleaseAfterTheContextHasEnded": (*faulttest.Site).ReleaseAfterTheContextHasEnded,
		"Fault78ProcessKilled":                  (*faulttest.Site).ProcessKilled,
		"Fault81ReaderKilled":                   (*faulttest.Site).ReaderKilled,
		"Fault84ForcedRelease":                  (*faulttest.Site).ForcedRelease,
		"Fault85AnyName":                        (*faulttest.Site).AnyName,
		"Fault85RenewalOfAnyName":               (*faulttest.Site).RenewalOfAnyName,
		"Fault86RefusedTTL":                     (*faulttest.Site).RefusedTTL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(alike(t, e))
		})
	}
}

// alike is the server with a root of the test's own.
func alike(t *testing.T, e *zookeepertest.Ensemble) *faulttest.Site {
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
	}
}
