package main

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store/postgres"
)

// poolSize is how many connections each program may have, with every library.
const poolSize = 16

// benchDatabase is where everything is measured.
const benchDatabase = "bench"

// preparePostgres makes the tables of all that is measured.
func preparePostgres(s *postgrestest.Server) error {
	c, err := pgx.Connect(in, s.URLOf("postgres"))
	if err != nil {
		return err
	}
	defer c.Close(in)
	if _, err := c.Exec(in, "CREATE DATABASE "+benchDatabase); err != nil {
		return err
	}
	b, err := pgx.Connect(in, s.URLOf(benchDatabase))
	if err != nil {
		return err
	}
	defer b.Close(in)
	if err := postgres.Migrate(in, b, ""); err != nil {
		return err
	}
	if _, err := b.Exec(in, "CREATE EXTENSION pg_stat_statements; CREATE TABLE floor (name text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)", pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	db, err := sql.Open("pgx", s.URLOf(benchDatabase))
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := pglock.UnsafeNew(db, pglock.WithCustomTable("pglock"))
	if err != nil {
		return err
	}
	return locks.TryCreateTable()
}

// clearPostgres removes what killed workers left behind.
func clearPostgres(s *postgrestest.Server) error {
	c, err := pgx.Connect(in, s.URLOf(benchDatabase))
	if err != nil {
		return err
	}
	defer c.Close(in)
	_, err = c.Exec(in, "TRUNCATE dlock_locks, floor, pglock", pgx.QueryExecModeSimpleProtocol)
	return err
}

// loadPostgres is what the server has done for clients.
func loadPostgres(s *postgrestest.Server) (l load, err error) {
	c, err := pgx.Connect(in, s.URLOf(benchDatabase))
	if err != nil {
		return l, err
	}
	defer c.Close(in)
	var micros float64
	err = c.QueryRow(in, "SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(total_exec_time), 0)::float8 * 1000 FROM pg_stat_statements").Scan(&l.requests, &micros)
	l.took = time.Duration(micros) * time.Microsecond
	return l, err
}

func dialPostgres(addr string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	return pgxpool.NewWithConfig(in, config)
}

func openDlockPostgres(handoffs int) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		s, err := postgres.Open(in, fmt.Sprintf("%s&pool_max_conns=%d", addr, poolSize))
		if err != nil {
			return nil, err
		}
		return newDlock(s, lease, handoffs)
	}
}

// postgresPair is the floor of PostgreSQL: two statements, nobody waits.
type postgresPair struct {
	pool  *pgxpool.Pool
	lease time.Duration
}

func openPostgresPair(addr string, lease time.Duration) (client, error) {
	pool, err := dialPostgres(addr)
	return &postgresPair{pool, lease}, err
}

func (c *postgresPair) locker(name string, _ use) (locker, error) {
	return &postgresPairLocker{c, name}, nil
}

type postgresPairLocker struct {
	c    *postgresPair
	name string
}

func (l *postgresPairLocker) lock(bool) error {
	tag, err := l.c.pool.Exec(in, "INSERT INTO floor VALUES ($1, 'owner', now() + $2) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE floor.until < now()", l.name, l.c.lease)
	if err == nil && tag.RowsAffected() == 0 {
		err = errHeld
	}
	return err
}

func (l *postgresPairLocker) unlock() error {
	_, err := l.c.pool.Exec(in, "DELETE FROM floor WHERE name = $1 AND owner = 'owner'", l.name)
	return err
}

// postgresNotify is the least that a hand-over in PostgreSQL can be: one commit, which
// sends the lock to the waiter. It is for two processes that pass a lock to and fro.
type postgresNotify struct {
	pool *pgxpool.Pool
	self string
	told chan struct{} // the other process gave the lock up
}

func openPostgresNotify(addr string, _ time.Duration) (client, error) {
	pool, err := dialPostgres(addr)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(in)
	if err != nil {
		return nil, err
	}
	listening := conn.Hijack() // it ends with the program
	if _, err := listening.Exec(in, "LISTEN floor"); err != nil {
		return nil, err
	}
	c := &postgresNotify{pool, rand.Text(), make(chan struct{}, 1)}
	go func() {
		for {
			n, err := listening.WaitForNotification(in)
			if err != nil {
				return
			}
			if n.Payload != c.self {
				c.told <- struct{}{}
			}
		}
	}()
	return c, nil
}

func (c *postgresNotify) locker(name string, _ use) (locker, error) {
	return &postgresNotifyLocker{c, name}, nil
}

type postgresNotifyLocker struct {
	c    *postgresNotify
	name string
}

func (l *postgresNotifyLocker) lock(bool) error {
	tag, err := l.c.pool.Exec(in, "INSERT INTO floor VALUES ($1, 'owner', now()) ON CONFLICT (name) DO NOTHING", l.name)
	if err == nil && tag.RowsAffected() == 0 {
		<-l.c.told
	}
	return err
}

func (l *postgresNotifyLocker) unlock() error {
	_, err := l.c.pool.Exec(in, "WITH passed AS (UPDATE floor SET until = now() WHERE name = $1 RETURNING name) SELECT pg_notify('floor', $2) FROM passed", l.name, l.c.self)
	return err
}

// pglockClient polls for what is held.
type pglockClient struct{ locks *pglock.Client }

func openPglock(addr string, lease time.Duration) (client, error) {
	db, err := sql.Open("pgx", addr)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	c, err := pglock.UnsafeNew(db, pglock.WithCustomTable("pglock"), pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/3))
	return &pglockClient{c}, err
}

func (c *pglockClient) locker(name string, _ use) (locker, error) {
	return &pglockLocker{c: c, name: name}, nil
}

type pglockLocker struct {
	c    *pglockClient
	name string
	lk   *pglock.Lock
}

func (l *pglockLocker) lock(bool) (err error) {
	l.lk, err = l.c.locks.AcquireContext(in, l.name)
	return err
}

func (l *pglockLocker) unlock() error      { return l.c.locks.ReleaseContext(in, l.lk) }
func (l *pglockLocker) keep(time.Duration) {}
func (l *pglockLocker) lost() bool         { return l.lk.IsReleased() }

// advisory is PostgreSQL's own lock of a session: a connection for each that is
// held or waited for, and neither a lease nor a token.
type advisory struct{ pool *pgxpool.Pool }

func openAdvisory(addr string, _ time.Duration) (client, error) {
	pool, err := dialPostgres(addr)
	return &advisory{pool}, err
}

func (c *advisory) locker(name string, _ use) (locker, error) {
	return &advisoryLocker{c: c, name: name}, nil
}

type advisoryLocker struct {
	c    *advisory
	name string
	conn *pgxpool.Conn
}

func (l *advisoryLocker) lock(bool) (err error) {
	if l.conn, err = l.c.pool.Acquire(in); err != nil {
		return err
	}
	_, err = l.conn.Exec(in, "SELECT pg_advisory_lock(hashtextextended($1, 0))", l.name)
	return err
}

func (l *advisoryLocker) unlock() error {
	defer l.conn.Release()
	_, err := l.conn.Exec(in, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", l.name)
	return err
}
