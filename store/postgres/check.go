package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/store"
)

// Warning is something about the server or the connection to it that costs
// locks or time, now or later.
type Warning struct {
	Topic string // wake-ups, durability, replica, table, clock, rights, pool or unreachable
	Text  string // what is wrong and what to do
}

// String returns all of it in one line.
func (w Warning) String() string { return w.Topic + ": " + w.Text }

// Check looks for what endangers locks or slows them down: messages that do not
// arrive, as behind a pooler in transaction mode; settings with which a crash of
// the server loses committed locks; a server that is a replica; a table that is
// kept in another way than [Schema] says; missing rights; a clock that differs
// much from this machine's. It returns a warning for each, none if all is well.
//
// It is for the start of a program, or for an operator. It takes, renews and releases a
// lock of a random name. It blocks until done or ctx ends.
func (s *Store) Check(ctx context.Context) (found []Warning) {
	warn := func(topic, format string, args ...any) {
		found = append(found, Warning{topic, fmt.Sprintf(format, args...)})
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return []Warning{{"unreachable", err.Error()}}
	}
	defer end()
	var replica bool
	var fsync, commit string
	var now time.Time
	sent := time.Now()
	err = s.backend.pool.QueryRow(ctx, "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'), clock_timestamp()").
		Scan(&replica, &fsync, &commit, &now)
	if err != nil {
		return []Warning{{"unreachable", s.backend.outcome(err).Error()}}
	}
	if replica {
		warn("replica", "the server is a replica, which keeps no locks: connect to the primary, with target_session_attrs=read-write in the URL")
	}
	if fsync == "off" || commit == "off" {
		warn("durability", "fsync is %s and synchronous_commit is %s: a crash of the server may lose locks that were granted", fsync, commit)
	}
	if off := now.Sub(sent).Round(time.Second); off.Abs() > time.Minute {
		side := "ahead of"
		if off < 0 {
			side = "behind"
		}
		warn("clock", "the server's clock is %v %s this machine's: locks are right as long as it does not jump", off.Abs(), side)
	}
	switch {
	case s.backend.opts.Poll:
	case s.Polls():
		warn("wake-ups", "messages do not arrive, as behind a pooler in transaction mode: waiters ask again and again, and a hand-over takes longer; set Options.Listen to the server's own address, or poll=true if that is meant")
	}
	if n := s.backend.pool.Config().MaxConns; n < 2 {
		warn("pool", "the pool has %d connection: renewals wait while another call uses it", n)
	}
	config := s.backend.pool.Config()
	several := slices.ContainsFunc(config.ConnConfig.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != config.ConnConfig.Host })
	if several && (config.ConnConfig.ConnectTimeout == 0 || config.PingTimeout == 0) {
		warn("pool", "there are several hosts, and no ConnectTimeout or no PingTimeout: one that is switched off can cost all locks; Open sets both")
	}
	s.checkTable(ctx, warn)
	s.checkRights(ctx, warn)
	return found
}

// checkTable compares the table with Schema.
func (s *Store) checkTable(ctx context.Context, warn func(topic, format string, args ...any)) {
	var fill, indexes, cache int
	var persistence string
	err := s.backend.pool.QueryRow(ctx, `SELECT c.relpersistence::text,
		coalesce((SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor'), 100),
		(SELECT count(*) FROM pg_index WHERE indrelid = c.oid),
		(SELECT seqcache FROM pg_sequence WHERE seqrelid = $2::text::regclass)
		FROM pg_class c WHERE c.oid = $1::text::regclass`, s.backend.table, sequence(s.backend.table)).Scan(&persistence, &fill, &indexes, &cache)
	switch {
	case err != nil:
		warn("table", "it cannot be looked at: %v", s.backend.outcome(err))
		return
	case persistence != "p":
		warn("table", "it is not a permanent table: a crash of the server loses all locks")
	}
	if cache != 1 {
		warn("table", "its sequence has CACHE %d: a later token may be lower than an earlier one; ALTER SEQUENCE %s CACHE 1", cache, sequence(s.backend.table))
	}
	if fill > 85 {
		warn("table", "its fillfactor is %d: with 70 renewals leave the index alone", fill)
	}
	if indexes > 1 {
		warn("table", "it has %d indexes: each renewal writes into all of them; the primary key is enough", indexes)
	}
}

// checkRights takes a lock, renews it and gives it back.
func (s *Store) checkRights(ctx context.Context, warn func(topic, format string, args ...any)) {
	random := make([]byte, 16)
	rand.Read(random)
	id := hex.EncodeToString(random)
	req := store.Request{Name: "dlock check " + id, Owner: id, ID: id, TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1, Label: "check"}
	ref := store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: time.Minute}
	_, err := s.Acquire(ctx, req)
	if err == nil {
		err = errors.Join(s.Renew(ctx, []store.Ref{ref})[0], s.Release(ctx, ref))
	}
	switch {
	case errors.Is(err, store.ErrRefused):
		warn("rights", "a lock cannot be taken, renewed and released: %v", err)
	case err != nil:
		warn("unreachable", "a lock cannot be taken, renewed and released: %v", err)
	}
	var drawn int64
	if s.backend.pool.QueryRow(ctx, "SELECT last_value FROM "+sequence(s.backend.table)).Scan(&drawn) == nil && drawn > math.MaxInt64/span/2 {
		warn("table", "the sequence of tokens is half used up")
	}
}
