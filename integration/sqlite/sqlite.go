// Package sqlite is a dlock store in a SQLite file, for processes of one machine:
// the example of docs/writing-a-store.md for package kv.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/dlock-go/dlock/store/kv"
)

const schema = `
CREATE TABLE IF NOT EXISTS locks (name BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (last INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);`

// backend is a database file.
type backend struct{ db *sql.DB }

// Open opens the locks in a file, which it makes if it is not there.
func Open(ctx context.Context, file string) (*kv.Store, error) {
	// IMMEDIATE takes the write lock at BEGIN, so a transaction never has to
	// be repeated. synchronous=FULL: a commit lasts.
	dsn := "file:" + url.PathEscape(file) + "?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(10000)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		db.Close()
		return nil, err
	}
	return kv.New(&backend{db}, nil)
}

// Update is one transaction. SQLite has one writer at a time, so the clock of the
// machine, read when the transaction has begun, is common to all processes.
func (b *backend) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	now := time.Now()
	var last uint64
	if err := tx.QueryRowContext(ctx, "SELECT last FROM counter").Scan(&last); err != nil {
		return err
	}
	issued := last
	for i, name := range names {
		r := kv.Record{Now: now, Last: last}
		err := tx.QueryRowContext(ctx, "SELECT value FROM locks WHERE name = ?", []byte(name)).Scan(&r.Value)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		f(i, &r)
		last = r.Last
		switch {
		case !r.Changed:
			continue
		case r.Value == nil:
			_, err = tx.ExecContext(ctx, "DELETE FROM locks WHERE name = ?", []byte(name))
		default:
			_, err = tx.ExecContext(ctx, "INSERT INTO locks VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", []byte(name), r.Value)
		}
		if err != nil {
			return err
		}
	}
	if last != issued {
		if _, err := tx.ExecContext(ctx, "UPDATE counter SET last = ?", last); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Names lists the names that have a value.
func (b *backend) Names(ctx context.Context) (names []string, err error) {
	rows, err := b.db.QueryContext(ctx, "SELECT name FROM locks")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, string(name))
	}
	return names, rows.Err()
}

// Close closes the file.
func (b *backend) Close() error { return b.db.Close() }
