package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

func TestMain(m *testing.M) {
	locktest.Main(m, func(url string) (store.Store, error) { return postgres.Open(context.Background(), url) }, "4")
}

// What tests of stores share, by short names.
var (
	request = locktest.LongRequest
	refOf   = locktest.RefTo
	hold    = locktest.Hold
	queue   = locktest.Queue
	release = locktest.Release
	hear    = locktest.Hear
	certain = locktest.Certain

	wantEvent = locktest.WantEvent
)

// site is a server with a database in which the table is.
type site struct {
	*postgrestest.Server
	t   testing.TB
	url string
}

// start starts a server and makes the table.
func start(t testing.TB, config ...string) *site {
	t.Helper()
	s := &site{Server: postgrestest.Start(t, config...), t: t}
	s.url = s.URL()
	migrate(t, s.url)
	return s
}

// another is the same server with a database of its own.
func (s *site) another(t testing.TB) *site {
	t.Helper()
	other := &site{Server: s.Server, t: t, url: s.URL()}
	migrate(t, other.url)
	return other
}

// together runs tests on one server, each with a database of its own.
func together(t *testing.T, s *site, tests map[string]func(*testing.T, *site)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, s.another(t)) })
	}
}

func migrate(t testing.TB, url string) {
	t.Helper()
	c := connect(t, url)
	if err := postgres.Migrate(t.Context(), c, ""); err != nil {
		t.Fatal(err)
	}
}

// connect returns a connection that the test closes.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// open opens a handle that the test closes.
func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// one is a row of one number.
func one(t testing.TB, url, sql string, args ...any) (n int) {
	t.Helper()
	c := connect(t, url)
	defer c.Close(context.Background())
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// await waits until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	locktest.Poll(t, what, 20*time.Second, ok)
}

// database is the name of the database in which the table is.
func (s *site) database() string {
	name, _, _ := strings.Cut(s.url[strings.LastIndex(s.url, "/")+1:], "?")
	return name
}
