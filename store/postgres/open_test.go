package postgres_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// TestCheck: a server as it should be has no warnings, and each thing that is
// wrong has one.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := start(t, "fsync=on")
	locks := open(t, s.url)
	if found := locks.Check(t.Context()); len(found) > 0 {
		t.Errorf("a good server: got %q", found)
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	hosts := strings.Replace(s.url, s.Addr, s.Addr+",localhost:"+port, 1)
	if found := open(t, hosts).Check(t.Context()); len(found) > 0 {
		t.Errorf("several hosts: got %q", found)
	}
	patient, err := postgres.New(newPool(t, hosts), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	if got := topics(patient.Check(t.Context())); got != "pool" {
		t.Errorf("several hosts, without bounds: got %q", got)
	}
	c := connect(t, s.url)
	for _, sql := range []string{
		"CREATE ROLE taker LOGIN", "GRANT SELECT, INSERT, DELETE ON dlock_locks TO taker", "GRANT USAGE, SELECT ON SEQUENCE dlock_locks_token TO taker",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	taker := open(t, strings.Replace(s.url, "dlock@", "taker@", 1))
	if got := topics(taker.Check(t.Context())); got != "rights" {
		t.Errorf("without the right to renew: got %q", got)
	}
	for _, sql := range []string{
		"ALTER TABLE dlock_locks RESET (fillfactor)", "CREATE INDEX ON dlock_locks (expires)", "ALTER TABLE dlock_locks SET UNLOGGED",
		"ALTER DATABASE " + s.database() + " SET synchronous_commit = off",
		"CREATE ROLE reader LOGIN", "GRANT SELECT ON dlock_locks TO reader",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	reader := open(t, strings.Replace(s.url, "dlock@", "reader@", 1)+"&pool_max_conns=1")
	if got := topics(reader.Check(t.Context())); got != "durability pool table table table rights" {
		t.Errorf("all wrong: got %q", got)
	}
	if _, err := reader.Acquire(t.Context(), request("n", 1, false)); !errors.Is(err, store.ErrRefused) {
		t.Errorf("without rights: got %v, want ErrRefused", err)
	}
	locks.Close()
	if got := topics(locks.Check(t.Context())); got != "unreachable" {
		t.Errorf("closed: got %q", got)
	}
	s.Stop()
	if got := topics(reader.Check(t.Context())); got != "unreachable" {
		t.Errorf("no server: got %q", got)
	}
}

// TestMigrate: at every start and in several processes at once, in a schema too.
func TestMigrate(t *testing.T) {
	t.Parallel()
	s := start(t)
	url := s.URL()
	if _, err := postgres.Open(t.Context(), url); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("without a table: got %v, want ErrRefused with advice", err)
	}
	if _, err := connect(t, url).Exec(t.Context(), "CREATE SCHEMA app"); err != nil {
		t.Fatal(err)
	}
	var migrations sync.WaitGroup
	for range 8 {
		c := connect(t, url)
		migrations.Go(func() {
			if err := postgres.Migrate(context.Background(), c, "app.Locks"); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	migrations.Wait()
	locks := open(t, url+"&table=app.Locks")
	hold(t, locks, request("n", 1, false))
	if n := one(t, url, `SELECT count(*) FROM app."Locks"`); n != 1 {
		t.Errorf("%d rows in app.Locks", n)
	}
	for _, table := range []string{"a.b.c", ".", "a.", ".a", strings.Repeat("x", 101), "a\x00"} {
		if _, err := postgres.Schema(table); err == nil {
			t.Errorf("Schema(%q): got no error", table)
		}
	}
	if sql, err := postgres.Schema(""); err != nil || !strings.Contains(sql, `"dlock_locks_token"`) {
		t.Errorf("Schema: got %q, %v", sql, err)
	}
}

// TestDocument: docs/postgres.md has the SQL of Schema.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	sql, err := postgres.Schema("")
	if err != nil || !strings.Contains(string(document), "```sql\n"+sql+"```") {
		t.Errorf("docs/postgres.md does not have\n%s", sql)
	}
}

// TestInvalidURL: errors do not repeat the URL.
func TestInvalidURL(t *testing.T) {
	for _, url := range []string{
		"", "mysql://u:secret@h/d", "postgres://u:secret@h:port/d", "postgres://u:secret@h/d?sslmode=perhaps",
		"postgres://u:secret@h/d?poll=maybe", "postgres://u:secret@h/d?table=a.b.c",
	} {
		_, err := postgres.Open(t.Context(), url)
		if !errors.Is(err, postgres.ErrInvalidURL) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v", url, err)
		}
	}
	if _, err := postgres.New(nil, nil); err == nil {
		t.Error("no pool: got no error")
	}
}

// TestNewLeavesThePool: Close of a handle closes only what the handle opened.
func TestNewLeavesThePool(t *testing.T) {
	t.Parallel()
	s := start(t)
	pool := newPool(t, s.url)
	locks, err := postgres.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool after Close: %v", err)
	}
	await(t, "the listener's connection is closed", func() bool {
		return one(t, s.url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dlock listener'") == 0
	})
}

// TestListenFails: Open does not outlive its ctx if the connection for messages stands
// still. The handle sends its messages all the same, and listens when that is possible.
func TestListenFails(t *testing.T) {
	t.Parallel()
	s := start(t)
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	var dials atomic.Int64
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	listen, dial := config.ConnConfig.Copy(), config.ConnConfig.DialFunc
	listen.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			addr = hanging.Addr().String()
		}
		return dial(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	locks, err := postgres.OpenWith(ctx, newPool(t, s.url), &postgres.Options{Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v with a ctx of 1 s", took)
	}
	await(t, "the handle listens", func() bool { return !locks.Polls() })
	if found := topics(locks.Check(t.Context())); strings.Contains(found, "wake-ups") {
		t.Errorf("Check: got %q", found)
	}
	events := hear(locks)
	holder, waiter := request("n", 1, false), request("n", 2, true)
	polling := open(t, s.url+"&poll=true")
	hold(t, polling, holder)
	queue(t, locks, waiter)
	release(t, polling, holder)
	wantEvent(t, events, "from a handle that polls", func(e store.Event) bool { return e.ID == waiter.ID })
}
