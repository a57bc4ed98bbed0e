package real

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store/postgres"
)

func (s *site) startPostgres(t testing.TB, clock bool) {
	t.Helper()
	if clock {
		s.postgres, s.clock = postgrestest.StartWithClock(t)
	} else {
		s.postgres = postgrestest.Start(t)
	}
	s.database = stores.NewDatabase(t, s.postgres)
	looking, err := postgres.Open(context.Background(), s.database+"&poll=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { looking.Close() })
	s.looking = looking
}

// leftAtPostgres are the rows. What has expired goes when it is looked at.
func (s *site) leftAtPostgres() (all []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.database)
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	names := func() ([]string, error) {
		rows, _ := c.Query(ctx, "SELECT encode(name, 'escape') FROM dlock_locks")
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	before, err := names()
	for i := 0; i < len(before) && err == nil; i++ {
		_, err = s.looking.Inspect(ctx, before[i])
	}
	if err == nil {
		all, err = names()
	}
	for i, name := range all {
		all[i] = "row " + name
	}
	return all, err
}

// lockTable keeps every call from the table until unlock is called.
func (s *site) lockTable() (unlock func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	c, err := pgx.Connect(ctx, s.database)
	if err == nil {
		_, err = c.Exec(ctx, "BEGIN; LOCK TABLE dlock_locks IN ACCESS EXCLUSIVE MODE", pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		s.t.Errorf("the table cannot be locked: %v", err)
	}
	return func() {
		if c != nil {
			c.Close(ctx)
		}
		cancel()
	}
}
