package postgres_test

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

func TestConformance(t *testing.T) { conform(t, "", opened) }

// TestConformancePolling: without a connection for LISTEN, and with calls that travel
// as if others did with them.
func TestConformancePolling(t *testing.T) {
	conform(t, "&poll=true", func(t testing.TB, url string) *postgres.Store {
		s := opened(t, url)
		s.AlwaysTogether()
		return s
	})
}

func conform(t *testing.T, parameters string, open func(testing.TB, string) *postgres.Store) {
	t.Parallel()
	s := start(t)
	url := s.url + "&pool_max_conns=4" + parameters
	conformance.RunSuite(t, conformance.Suite{
		New:  func(t testing.TB) store.Store { return open(t, url) },
		Peer: func(t testing.TB, _ store.Store) store.Store { return open(t, url) },
		Plant: func(t testing.TB, _ store.Store, name string) {
			c := connect(t, s.url)
			if _, err := c.Exec(t.Context(), "INSERT INTO dlock_locks VALUES ($1, 'a value of another program', now() + interval '1 hour')", []byte(name)); err != nil {
				t.Fatal(err)
			}
		},
		Stall: func(t testing.TB, _ store.Store) (resume func()) {
			c := connect(t, s.url)
			tx, err := c.Begin(context.Background())
			if err == nil {
				_, err = tx.Exec(context.Background(), "LOCK TABLE dlock_locks IN ACCESS EXCLUSIVE MODE")
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() { tx.Rollback(context.Background()) }
		},
		Footprint: func(store.Store) int { return one(t, s.url, "SELECT count(*) FROM dlock_locks") },
		Parallel:  8,
	})
}

// opened opens a handle that the suite closes.
func opened(t testing.TB, url string) *postgres.Store {
	s, err := postgres.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
