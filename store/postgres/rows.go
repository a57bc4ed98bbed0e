package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// removals is after how many rows that this handle has removed it vacuums the
// table. Autovacuum looks once a minute, in which a busy service may use 100,000
// names, each of which leaves a row version and an index entry.
const removals = 5000

// dropped counts rows that were removed and vacuums the table now and then.
func (b *backend) dropped(rows int) {
	if rows == 0 || b.removed.Add(int64(rows)) < removals {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.vacuuming {
		return
	}
	b.removed.Store(0)
	b.vacuuming = true
	go b.vacuum()
}

// vacuum makes room for new rows. It blocks no other call. If this user does not
// own the table, the server does nothing, and autovacuum has to be enough.
func (b *backend) vacuum() {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	b.pool.Exec(ctx, "VACUUM (SKIP_LOCKED, TRUNCATE FALSE) "+b.table)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vacuuming = false
}

// Names implements [kv.Backend].
func (b *backend) Names(ctx context.Context) ([]string, error) {
	rows, err := b.pool.Query(ctx, b.names)
	if err != nil {
		return nil, b.outcome(err)
	}
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name []byte
		err := row.Scan(&name)
		return string(name), err
	})
	return names, b.outcome(err)
}

// Sweep implements [kv.Sweeper]. It passes over rows that a transaction uses.
func (b *backend) Sweep(ctx context.Context) error {
	tag, err := b.pool.Exec(ctx, b.sweep)
	b.dropped(int(tag.RowsAffected()))
	return b.outcome(err)
}
