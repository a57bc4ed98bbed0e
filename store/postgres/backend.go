package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/store/kv"
	"github.com/dlock-go/dlock/store/model"
)

// span is how many tokens one value of the sequence stands for, so that a
// transaction has enough for its grants without a further statement. Tokens stay
// below 2^53 for the first 10^12 transactions.
const span = 1024

// tries is how often a transaction is run that the server rolls back because of
// another one.
const tries = 5

// mostIdle is how long the server lets a transaction wait for its second round trip at
// most. A process that is stopped in between, or whose network is cut, would otherwise
// keep the name for as long as the server knows nothing of it.
const mostIdle = 5 * time.Second

// idleTime is how long the server lets a transaction wait that begins now, in milliseconds.
// Its second round trip never comes after ctx has ended, and other callers may have leases
// shorter than mostIdle.
func idleTime(ctx context.Context) string {
	wait := mostIdle
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return strconv.FormatInt(max(wait.Milliseconds(), 0)+1, 10) // 0 would be for ever
}

// backend is the table, as package kv needs it.
type backend struct {
	pool    *pgxpool.Pool
	ownPool bool
	opts    Options
	table   string          // quoted
	key     string          // what the keys of advisory locks depend on: the table with its schema
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	// transactions has room for all connections but one. A transaction may wait for a
	// name. The other statements wait for none, and still have a connection.
	transactions chan struct{}

	lockOne, lockAll, readOne, readAll, clock, write, remove, names, list, sweep string
	insert, insertAll, drop, dropAll, prolong, swaps                             string

	removed atomic.Int64 // rows, since the last vacuum

	mu        sync.Mutex
	closed    bool
	vacuuming bool
	link      *listener
}

func newBackend(pool *pgxpool.Pool, o Options) (*backend, error) {
	table, err := identifier(o.Table)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	next := "nextval(" + literal(sequence(table)) + ")"
	token := "(" + next + " - 1) * " + strconv.Itoa(span) + " + 1"
	b := &backend{
		pool: pool, opts: o, table: table,
		transactions: make(chan struct{}, max(1, pool.Config().MaxConns-1)),

		lockOne: "SELECT pg_advisory_xact_lock($1)",
		lockAll: "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key",
		readOne: "SELECT " + columns + " FROM " + table + " WHERE name = $1 FOR UPDATE",
		readAll: "SELECT " + columns + " FROM " + table + " WHERE name = ANY($1) ORDER BY name FOR UPDATE",
		clock:   "SELECT clock_timestamp(), " + next + ", set_config('idle_in_transaction_session_timeout', $1, true)",
		// A name that has a row is passed over: the server would wait for a transaction that changes the row.
		insert: "WITH locked AS MATERIALIZED (SELECT true WHERE pg_try_advisory_xact_lock($1))" +
			" INSERT INTO " + table + " (name, value, expires, lone, token, short)" +
			" SELECT $2, $3, clock_timestamp() + $4 * interval '1 microsecond', $5, " + token + ", $6 FROM locked" +
			" WHERE (SELECT true FROM " + table + " AS t WHERE t.name = $2) IS NULL" +
			" ON CONFLICT (name) DO NOTHING RETURNING token",
		// (SELECT $1) hides how long an array is, else the server plans each statement again.
		insertAll: "WITH locked AS MATERIALIZED (SELECT name, value, lease, id, short" +
			" FROM unnest((SELECT $1::bigint[]), (SELECT $2::bytea[]), (SELECT $3::bytea[]), (SELECT $4::bigint[]), (SELECT $5::bytea[]), (SELECT $6::integer[]))" +
			" AS u(key, name, value, lease, id, short) WHERE pg_try_advisory_xact_lock(key))" +
			" INSERT INTO " + table + " (name, value, expires, lone, token, short)" +
			" SELECT name, value, clock_timestamp() + lease * interval '1 microsecond', id, " + token + ", short FROM locked" +
			" WHERE (SELECT true FROM " + table + " AS t WHERE t.name = locked.name) IS NULL" +
			" ON CONFLICT (name) DO NOTHING RETURNING lone, token",
		// The id once more, as two partitions of a table may have the same ctid.
		drop: "DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + table +
			" WHERE name = $1 AND lone = $2 AND expires > clock_timestamp() FOR UPDATE SKIP LOCKED)) AND lone = $2",
		dropAll: "DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT at FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[])) AS u(name, id)," +
			" LATERAL (SELECT t.ctid AS at FROM " + table + " AS t" +
			" WHERE t.name = u.name AND t.lone = u.id AND t.expires > clock_timestamp() FOR UPDATE SKIP LOCKED) AS found))" +
			" AND lone = ANY ((SELECT $2)::bytea[]) RETURNING lone, 0::bigint",
		prolong: prolongSQL(table), swaps: swapSQL(table, next),
		write: "INSERT INTO " + table + " (name, value, expires) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::timestamptz[])" +
			" ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires, lone = NULL",
		remove: "DELETE FROM " + table + " WHERE name = ANY($1)",
		names:  "SELECT name FROM " + table,
		list:   "SELECT " + columns + ", clock_timestamp() FROM " + table,
		sweep: "DELETE FROM " + table + " WHERE name IN (SELECT name FROM " + table +
			" WHERE expires < clock_timestamp() FOR UPDATE SKIP LOCKED)",
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// lockKey is the key of the advisory lock of a name. Two names with one key only
// wait for each other.
func lockKey(table, name string) int64 {
	sum := sha256.Sum256([]byte("dlock\x00" + table + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Update implements [kv.Backend] in one transaction of two round trips. The first
// locks the names, reads them and then the clock; the second writes and commits.
//
// A row that is not there cannot be locked, so an advisory lock stands for the
// name. The rows are locked as well, because [Guard] and the sweep hold rows
// only. The clock and the sequence are read by a statement after these: the
// server evaluates the columns of a SELECT FOR UPDATE before it waits.
func (b *backend) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	for try := 1; ; try++ {
		err := b.update(ctx, names, f)
		if err == nil || try == tries || !rolledBack(err) || ctx.Err() != nil {
			return b.outcome(err)
		}
	}
}

func (b *backend) update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	select {
	case b.transactions <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.transactions }()
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	records, err := b.read(ctx, conn, names)
	if err == nil {
		last := records[0].Last
		for i := range records {
			r := &records[i]
			r.Last = last
			f(i, r)
			last = r.Last
		}
		err = b.commit(ctx, conn, names, records)
	}
	if err != nil && !conn.Conn().IsClosed() {
		// The pool closes a connection whose transaction is open, so this only
		// saves a connection.
		conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// read begins the transaction and reads the records of the names.
func (b *backend) read(ctx context.Context, conn *pgxpool.Conn, names []string) ([]kv.Record, error) {
	work := &pgx.Batch{}
	work.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	if len(names) == 1 {
		work.Queue(b.lockOne, lockKey(b.key, names[0]))
		work.Queue(b.readOne, []byte(names[0]))
	} else {
		keys, all := make([]int64, len(names)), make([][]byte, len(names))
		for i, name := range names {
			keys[i], all[i] = lockKey(b.key, name), []byte(name)
		}
		slices.Sort(keys) // one order for all, so that nobody waits in a circle
		work.Queue(b.lockAll, keys)
		work.Queue(b.readAll, all)
	}
	work.Queue(b.clock, idleTime(ctx))
	results := conn.SendBatch(ctx, work)
	defer results.Close()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
	}
	records := make([]kv.Record, len(names))
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		name, value, err := scan(rows)
		if err != nil {
			return nil, err
		}
		if i := slices.Index(names, name); i >= 0 {
			records[i].Value = value
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	var now time.Time
	var drawn int64
	if err := results.QueryRow().Scan(&now, &drawn, nil); err != nil {
		return nil, err
	}
	for i := range records {
		records[i].Now = now
		records[i].Last = uint64(drawn-1) * span
		records[i].Limit = uint64(drawn) * span
	}
	return records, results.Close()
}

// columns are what scan reads.
const columns = "name, value, expires, lone, token, short, since"

// scan reads a row. The record of a lone hold is put together from its columns. If they
// do not fit together, value is no record, which is a foreign value.
func scan(row pgx.Row) (name string, value []byte, err error) {
	var key, lone []byte
	var expires, since pgtype.Timestamptz // may be infinite
	var token int64
	var short int
	if err := row.Scan(&key, &value, &expires, &lone, &token, &short, &since); err != nil {
		return "", nil, err
	}
	if lone == nil {
		return string(key), value, nil
	}
	value, err = model.CompleteHold(value, uint64(token), short, moment(since.Time), moment(expires.Time))
	if err != nil || !fits(expires) || !fits(since) {
		value = []byte{}
	}
	return string(key), value, nil
}

// fits says whether a record can have the time: it is finite, and not after the year 2262.
// Beyond, a hold would be dead for transactions and alive for statements on lone holds.
func fits(t pgtype.Timestamptz) bool {
	return t.Valid && t.InfinityModifier == pgtype.Finite && at(moment(t.Time)).Equal(t.Time)
}

// commit writes what changed and ends the transaction.
func (b *backend) commit(ctx context.Context, conn *pgxpool.Conn, names []string, records []kv.Record) error {
	var written, values, removed [][]byte
	var expires []time.Time
	for i := range records {
		switch r := &records[i]; {
		case !r.Changed:
		case r.Value == nil:
			removed = append(removed, []byte(names[i]))
		default:
			written, values, expires = append(written, []byte(names[i])), append(values, r.Value), append(expires, r.Expires)
		}
	}
	work := &pgx.Batch{}
	if written != nil {
		work.Queue(b.write, written, values, expires)
	}
	if removed != nil {
		work.Queue(b.remove, removed)
	}
	work.Queue("COMMIT")
	if err := conn.SendBatch(ctx, work).Close(); err != nil {
		return err
	}
	b.dropped(len(removed))
	return nil
}

// Close implements [kv.Backend].
func (b *backend) Close() error {
	b.cancel()
	b.mu.Lock()
	b.closed = true
	link := b.link
	b.mu.Unlock()
	if link != nil {
		link.close()
	}
	if b.ownPool {
		b.pool.Close()
	}
	return nil
}
