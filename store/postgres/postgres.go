// Package postgres keeps dlock's locks in one table of a PostgreSQL database,
// version 13 or newer. Time is the server's, tokens come from a sequence, and
// NOTIFY wakes waiters. [Guard] lets a transaction of your own commit only while
// a lock is held.
//
// The table is made by [Migrate], or by hand from [Schema]. docs/postgres.md is
// for users and operators.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// DefaultTable is the name of the table if Options say nothing else.
const DefaultTable = "dlock_locks"

const (
	minTTL      = 100 * time.Millisecond
	openTimeout = 10 * time.Second
	// connectTimeout is for one address. Of several hosts the first may be one that is switched off: then each
	// connection begins with it. Without a bound pgxpool gives it two minutes.
	connectTimeout = 2 * time.Second
	// pingTimeout is for the question whether an idle connection lives.
	pingTimeout = time.Second
	batch       = 500 // holds in one statement of renewals
)

// ErrInvalidURL: [Open] was given something that is no URL of a PostgreSQL
// database. The error does not repeat the URL, which may contain a password.
var ErrInvalidURL = storeurl.ErrInvalid

// Options of a Store. The zero value of each field means its default.
type Options struct {
	// Table is the table of the locks, with a schema or without:
	// "dlock_locks", "app.locks". Its sequence has the same name and "_token".
	// Default: [DefaultTable].
	Table string

	// Listen is how to connect for LISTEN, for a pool that goes through a pooler in
	// transaction mode: the address of the server itself. Nil: as the pool
	// connects.
	Listen *pgx.ConnConfig

	// Poll makes the handle look for its waiters instead of listening. It needs
	// no connection of its own then, and a hand-over takes longer.
	Poll bool
}

// Store is one handle on the locks of a table. It is safe for concurrent use.
type Store struct {
	*kv.Store
	backend *backend
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	busy    busy
	places  places
	calls   combiner // of lone holds
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

// Open connects to the database of a URL and returns a handle on the locks in
// it, whose Close closes the connections. It blocks until connected, for as long
// as ctx lasts and for 10 seconds at most. The table has to be there, see
// [Migrate].
//
//	postgres://user:password@host:port/database?sslmode=verify-full&table=app.locks
//
// The URL is that of pgx, with its parameters, and pool_max_conns and the like of
// pgxpool. The parameter table is as in Options, and poll=true too. By default connect_timeout,
// which is for each address, is 2 s and pool_ping_timeout 1 s: a host that is switched off
// must not cost locks when there are several.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	config, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s, err := open(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.backend.ownPool = true
	return s, nil
}

// New returns a handle on the locks in the pool's database. A nil *Options means
// the defaults. Close leaves the pool open. It asks the server for its
// version and whether the table is there, for 10 seconds at most.
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres: no pool")
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return open(ctx, pool, opts)
}

// open makes the handle, after a look at the server.
func open(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	b, err := newBackend(pool, o)
	if err != nil {
		return nil, err
	}
	if err := b.look(ctx); err != nil {
		return nil, err
	}
	inner, err := kv.New(listening{b, ctx}, &kv.Options{MinTTL: minTTL, Batch: mostTogether})
	if err != nil {
		return nil, err
	}
	s := &Store{Store: inner, backend: b}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.calls.ctx, s.calls.alone, s.calls.together = s.ctx, s.alone, s.together
	return s, nil
}

// look checks the server's version and that the table can be read.
func (b *backend) look(ctx context.Context) error {
	var version int
	if err := b.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("postgres: connect: %w", err)
	}
	if version < 130000 {
		return fmt.Errorf("postgres: the server's version is %d, and 13 or newer is required", version/10000)
	}
	if _, err := b.pool.Exec(ctx, "SELECT "+columns+" FROM "+b.table+" LIMIT 0"); err != nil {
		return b.outcome(err)
	}
	// Two handles may name the table with and without its schema.
	return b.outcome(b.pool.QueryRow(ctx, "SELECT n.nspname || '.' || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"+
		" WHERE c.oid = $1::text::regclass", b.table).Scan(&b.key))
}

// parseURL splits off the parameters that are this package's own.
func parseURL(raw string) (*pgxpool.Config, *Options, error) {
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return nil, nil, storeurl.Invalid("it does not begin with postgres:// or postgresql://")
	}
	opts := &Options{}
	base, query, _ := strings.Cut(raw, "?")
	var rest []string
	for _, parameter := range strings.Split(query, "&") {
		name, raw, _ := strings.Cut(parameter, "=")
		value, err := url.QueryUnescape(raw)
		switch {
		case parameter == "":
		case err != nil:
			return nil, nil, storeurl.Invalid("a parameter is not encoded right")
		case name == "table":
			opts.Table = value
		case name == "poll" && (value == "true" || value == "false"):
			opts.Poll = value == "true"
		case name == "poll":
			return nil, nil, storeurl.Invalid("poll is neither true nor false")
		default:
			rest = append(rest, parameter)
		}
	}
	if len(rest) > 0 {
		base += "?" + strings.Join(rest, "&")
	}
	config, err := pgxpool.ParseConfig(base)
	if err != nil { // pgx's error may repeat parts of the URL
		return nil, nil, storeurl.Invalid("pgx does not understand it")
	}
	if _, err := identifier(opts.Table); err != nil {
		return nil, nil, storeurl.Invalid("%v", err)
	}
	if c := config.ConnConfig; c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
		c.DialFunc = (&net.Dialer{Timeout: connectTimeout}).DialContext // also of requests to cancel a statement
	}
	config.PingTimeout = cmp.Or(config.PingTimeout, pingTimeout)
	return config, opts, nil
}

// maxName is how long a name may be: PostgreSQL cuts longer ones.
const maxName = 63

// identifier quotes the name of a table, with a schema or without. The name of its
// sequence has to be short enough too.
func identifier(table string) (string, error) {
	if table == "" {
		table = DefaultTable
	}
	parts := strings.Split(table, ".")
	if len(parts) > 2 || len(parts[0]) == 0 || len(parts[len(parts)-1]) == 0 || len(parts[0]) > maxName ||
		len(parts[len(parts)-1])+len(tokenSuffix) > maxName || strings.Contains(table, "\x00") {
		return "", errors.New("the table is not a name or schema.name, or is too long")
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

// literal quotes a text for SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
