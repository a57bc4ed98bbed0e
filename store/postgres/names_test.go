package postgres_test

import (
	"context"
	"fmt"
	"math"
	neturl "net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// TestSettings: names of tables, settings of pools and what Check says of them.
func TestSettings(t *testing.T) {
	t.Parallel()
	together(t, start(t, "fsync=on"), map[string]func(*testing.T, *site){
		"TableNames":                   tableNames,
		"SequenceCache":                sequenceCache,
		"ListenerFollowsBeforeConnect": listenerFollowsBeforeConnect,
		"ManyTokens":                   manyTokens,
		"Protocols":                    protocols,
		"Partitions":                   partitions,
	})
}

// partitions: rows of two partitions may be at the same place. A release takes its own row only.
func partitions(t *testing.T, s *site) {
	c := connect(t, s.url)
	for _, sql := range []string{
		"ALTER TABLE dlock_locks RENAME TO plain",
		"CREATE TABLE dlock_locks (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (name)) PARTITION BY HASH (name)",
		"CREATE TABLE p0 PARTITION OF dlock_locks FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
		"CREATE TABLE p1 PARTITION OF dlock_locks FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	locks := open(t, s.url)
	var requests []store.Request
	for i := range 40 {
		requests = append(requests, request(fmt.Sprint("n", i), i, false))
		hold(t, locks, requests[i])
	}
	release(t, locks, requests[0])
	if err := locks.DropTogether(t.Context(), refOf(requests[1]))[0]; err != nil {
		t.Error(err)
	}
	if n := one(t, s.url, "SELECT count(*) FROM dlock_locks"); n != 38 {
		t.Errorf("%d of 38 holds are left", n)
	}
}

// tableNames: every name of a table that PostgreSQL takes works, in a URL too, and
// one that it would cut is refused.
func tableNames(t *testing.T, s *site) {
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), `CREATE SCHEMA "it's ""one"""`); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"it's", `"quoted"`, "50% & more", "Grüße", `it's "one".locks`, strings.Repeat("x", 57)} {
		if err := postgres.Migrate(t.Context(), c, table); err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		locks, err := postgres.Open(t.Context(), s.url+"&table="+neturl.QueryEscape(table))
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		first, waiter := request("n", 1, false), request("n", 2, true)
		hold(t, locks, first)
		queue(t, locks, waiter)
		queue(t, locks, waiter)
		if found := locks.Check(t.Context()); len(found) > 0 {
			t.Errorf("%s: Check: got %q", table, found)
		}
		locks.Close()
	}
	for _, table := range []string{strings.Repeat("x", 58), strings.Repeat("x", 64) + ".locks"} {
		if _, err := postgres.Schema(table); err == nil {
			t.Errorf("Schema(%q): got no error", table)
		}
	}
}

// sequenceCache: Check warns of a sequence that gives each connection values ahead,
// with which a later token may be lower.
func sequenceCache(t *testing.T, s *site) {
	if _, err := connect(t, s.url).Exec(t.Context(), "ALTER SEQUENCE dlock_locks_token CACHE 20"); err != nil {
		t.Fatal(err)
	}
	if got := topics(open(t, s.url).Check(t.Context())); got != "table" {
		t.Errorf("got %q, want a warning of the table", got)
	}
}

// listenerFollowsBeforeConnect: what a pool changes before it connects, such as a
// password that is valid for minutes, is changed for the listener too.
func listenerFollowsBeforeConnect(t *testing.T, s *site) {
	config, err := pgxpool.ParseConfig(strings.Replace(s.url, "dlock@", "nobody@", 1))
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		calls.Add(1)
		c.User = "dlock"
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	locks, err := postgres.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if locks.Polls() {
		t.Errorf("it polls, after %d calls of BeforeConnect", calls.Load())
	}
}

// manyTokens: a request for more tokens than the table's columns can count is
// granted with fewer.
func manyTokens(t *testing.T, s *site) {
	locks := open(t, s.url)
	req := request("n", 1, false)
	req.Tokens = math.MaxInt
	if g := hold(t, locks, req); g.Short <= 0 || g.Short >= req.Tokens {
		t.Errorf("got %+v", g)
	}
}

// protocols: the store works with every way of pgx to send a statement.
func protocols(t *testing.T, s *site) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		locks := open(t, s.url+"&default_query_exec_mode="+mode)
		holder, waiter := request(mode+"\x00'\\\xff", 1, false), request(mode+"\x00'\\\xff", 2, true)
		hold(t, locks, holder)
		queue(t, locks, waiter)
		queue(t, locks, waiter)
		queue(t, locks, waiter)
		if errs := locks.Renew(t.Context(), []store.Ref{refOf(holder)}); errs[0] != nil {
			t.Errorf("%s: Renew: %v", mode, errs[0])
		}
		if _, errs := locks.TakeTogether(t.Context(), request("a"+mode, 3, false), request("b"+mode, 4, false)); errs[0] != nil || errs[1] != nil {
			t.Errorf("%s: together: %v", mode, errs)
		}
		if err := locks.Release(t.Context(), refOf(holder)); err != nil {
			t.Errorf("%s: Release: %v", mode, err)
		}
		if names, err := locks.List(t.Context()); err != nil || len(names) == 0 {
			t.Errorf("%s: List: %v, %v", mode, names, err)
		}
	}
}
