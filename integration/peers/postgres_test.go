package peers

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store/postgres"
)

// startPostgres starts a server for very many small pools.
func (s *site) startPostgres(t *testing.T) {
	t.Helper()
	s.sql = postgrestest.Start(t, "max_connections = 1000")
	url, ctx := stores.NewDatabase(t, s.sql), context.Background()
	rows, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rows.Close)
	s.rows = rows
	s.open = func(addr string) (client, error) {
		on, err := postgres.Open(ctx, strings.Replace(url, s.sql.Addr, addr, 1)+"&pool_max_conns=2")
		if err != nil {
			return nil, err
		}
		return newDlock(on)
	}
	s.beats = watch(t, func() { rows.Exec(ctx, "SELECT 1") })
}

// hasRow reports whether the table has the lock.
func (s *site) hasRow(t testing.TB, name string) bool {
	t.Helper()
	var n int
	if err := s.rows.QueryRow(context.Background(), "SELECT count(*) FROM dlock_locks WHERE encode(name, 'escape') = $1", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}
