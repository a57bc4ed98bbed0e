package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faulttest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

func TestFaultsOfAllStores(t *testing.T) {
	s := start(t)
	faulttest.Run(t, func(t *testing.T) *faulttest.Site { return alike(t, s.another(t)) })
}

// alike is a database for one test.
func alike(t *testing.T, s *site) *faulttest.Site {
	t.Parallel()
	return &faulttest.Site{
		T: t, Addr: s.Addr,
		URL:    func(addr string) string { return strings.Replace(s.url, s.Addr, addr, 1) + "&pool_max_conns=3" },
		Open:   func(url string) store.Store { return open(t, url) },
		Direct: open(t, s.url+"&pool_max_conns=3"),
		Empty: func(within time.Duration) { // what has expired goes when other names come
			locktest.Poll(t, "no row left", within, func() bool {
				return one(t, s.url, "SELECT count(*) FROM dlock_locks WHERE expires > now()") == 0
			})
		},
		Lease: 2 * time.Second,
		Lag:   50 * time.Millisecond,
	}
}
