package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

const lease = 10 * time.Second

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

func request(name string, n int, queue bool) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%06x%026x", n, n), Queue: queue,
		TTL: lease, WaitTTL: lease, Tokens: 1,
	}
}

func refOf(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: req.TTL}
}

func hold(t testing.TB, s store.Store, req store.Request) store.Grant {
	t.Helper()
	g, err := s.Acquire(context.Background(), req)
	if err != nil || !g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it held", g, err)
	}
	return g
}

func queue(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if g, err := s.Acquire(context.Background(), req); err != nil || g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it queued", g, err)
	}
}

// hear returns a channel of the events of a handle.
func hear(s store.Store) <-chan store.Event {
	events := make(chan store.Event, 1000)
	s.Listen(func(e store.Event) {
		select {
		case events <- e:
		default:
		}
	})
	return events
}

// wantEvent waits for an event that ok accepts.
func wantEvent(t testing.TB, events <-chan store.Event, what string, ok func(store.Event) bool) {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if ok(e) {
				return
			}
		case <-timer.C:
			t.Fatalf("no event: %s", what)
		}
	}
}

// await waits until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true after 20 s: %s", what)
		}
	}
}

// database is the name of the database in which the table is.
func (s *site) database() string {
	name, _, _ := strings.Cut(s.url[strings.LastIndex(s.url, "/")+1:], "?")
	return name
}
