package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store/model"
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

// vacuum makes room for new rows, unless transactions have all the connections that they may have. It blocks no other
// call. If this user does not own the table, the server does nothing, and autovacuum has to be enough.
func (b *backend) vacuum() {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	select {
	case b.transactions <- struct{}{}:
		b.pool.Exec(ctx, "VACUUM (SKIP_LOCKED, TRUNCATE FALSE) "+b.table)
		<-b.transactions
	default:
	}
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

// List implements [store.Lister]: one statement that locks nothing, so a name that is
// blocked delays neither it nor another name.
func (s *Store) List(ctx context.Context) ([]string, error) {
	during, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	rows, err := s.backend.pool.Query(during, s.backend.list)
	if err != nil {
		return nil, s.backend.outcome(err)
	}
	var used []string
	var record model.Record
	for rows.Next() {
		var now time.Time
		name, value, err := scan(timed{rows, &now})
		if err != nil {
			rows.Close()
			return nil, s.backend.outcome(err)
		}
		if record.UnmarshalBinary(value) == nil && record.InUse(moment(now)) {
			used = append(used, name)
		}
	}
	return used, s.backend.outcome(rows.Err())
}

// timed is a row that ends with the present.
type timed struct {
	pgx.Row
	now *time.Time
}

// Scan implements [pgx.Row].
func (t timed) Scan(columns ...any) error { return t.Row.Scan(append(columns, t.now)...) }

// Sweep implements [kv.Sweeper]. It passes over rows that a transaction uses.
func (b *backend) Sweep(ctx context.Context) error {
	tag, err := b.pool.Exec(ctx, b.sweep)
	b.dropped(int(tag.RowsAffected()))
	return b.outcome(err)
}
