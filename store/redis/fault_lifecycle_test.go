package redis_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// Thousands of calls lose patience at a random moment and many processes are
// killed. When their leases are over nothing is left of them: no key but the
// token counters, no subscription, and when the clients are closed no connection.
func TestNothingIsLeft(t *testing.T) {
	cancels, crashes := 2000, 10
	if os.Getenv("DLOCK_PROVE") != "" {
		cancels, crashes = 10_000, 100
	}
	o := dlock.Options{TTL: time.Second, StoreTimeout: 3 * time.Second}
	s := newSite(t)
	own := connections([]*redistest.Server{s.server})
	stores := []*redis.Store{open(t, s.server.URL()), open(t, s.server.URL()), open(t, s.server.URL())}
	var clients []*dlock.Client
	for _, st := range stores {
		clients = append(clients, locktest.NewClient(t, st, o))
	}
	locktest.ChurnAmongDeaths(t, clients, cancels, s.server.URL(), o.TTL, crashes)
	over := time.Now().Add(o.TTL + 2*time.Second)
	s.empty(time.Until(over))
	locktest.Poll(t, "no subscription left", max(locktest.Soon, time.Until(over)), func() bool { return len(channels(s.server)) == 0 })
	for i, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stores[i].Close()
	}
	locktest.Poll(t, "no connection left", locktest.Soon, func() bool { return connections([]*redistest.Server{s.server}) <= own })
	for name := range strings.FieldsSeq(s.server.MustDo("KEYS", "*")) {
		if kind := s.server.MustDo("TYPE", name); kind != "string" {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}
