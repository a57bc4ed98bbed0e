package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// TestAlike are the tests of faults that are the same for all stores.
func TestAlike(t *testing.T) {
	s := start(t)
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
			test(alike(t, s.another(t)))
		})
	}
}

func alike(t *testing.T, s *site) *faulttest.Site {
	return &faulttest.Site{
		T: t, Addr: s.Addr,
		URL:    func(addr string) string { return strings.Replace(s.url, s.Addr, addr, 1) + "&pool_max_conns=3" },
		Open:   func(url string) store.Store { return open(t, url) },
		Direct: open(t, s.url+"&pool_max_conns=3"),
		Empty: func(within time.Duration) {
			locktest.Poll(t, "no row left", within, func() bool { return one(t, s.url, "SELECT count(*) FROM dlock_locks") == 0 })
		},
		Lease: 2 * time.Second,
		Lag:   50 * time.Millisecond,
	}
}
