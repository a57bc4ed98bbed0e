package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// Hold is a lock that is held: a *dlock.Hold.
type Hold interface {
	Name() string
	Token() uint64
}

// Guard makes a transaction of your own commit only while the lock is held. Call
// it inside the transaction, in the database of the locks:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "UPDATE ..."); err != nil {
//			return err
//		}
//		return postgres.Guard(ctx, tx, hold)
//	})
//
// It reads the row of the lock FOR SHARE. Until your transaction ends, nobody
// else can be granted the lock, not even if the lease ends meanwhile, and the
// lock can neither be renewed nor released. So call it late, and commit
// soon: well within the lease. Unlock after the commit: within the process the lock may
// pass to another goroutine at once, without a call of the database. The isolation level
// is READ COMMITTED, the server's default: a transaction with an older snapshot does not
// see a hold that was granted since.
//
// The error is [store.ErrLost] if the lock is not held with the token of hold, or if
// hold has a method Err that says so,
// and [store.ErrForeignKey] if the row is none of dlock's. Guard is for the
// [DefaultTable]; for another table see [Store.Guard].
func Guard(ctx context.Context, tx pgx.Tx, hold Hold) error {
	table, _ := identifier("")
	return guard(ctx, tx, hold, table)
}

// Guard is [Guard] for the table of this store.
func (s *Store) Guard(ctx context.Context, tx pgx.Tx, hold Hold) error {
	return guard(ctx, tx, hold, s.backend.table)
}

func guard(ctx context.Context, tx pgx.Tx, hold Hold, table string) error {
	if tx == nil || hold == nil {
		return errors.New("postgres: Guard needs a transaction and a hold")
	}
	// The store keeps the tokens of one process as a span, and does not know which of
	// them has been unlocked.
	if h, ok := hold.(interface{ Err() error }); ok && h.Err() != nil {
		return fmt.Errorf("postgres: guard: %w: %w", store.ErrLost, h.Err())
	}
	work := &pgx.Batch{}
	work.Queue("SELECT "+columns+" FROM "+table+" WHERE name = $1 FOR SHARE", []byte(hold.Name()))
	work.Queue("SELECT clock_timestamp()") // after the wait for the row
	results := tx.SendBatch(ctx, work)
	defer results.Close()
	_, value, err := scan(results.QueryRow())
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("postgres: guard: %w", store.ErrLost)
	}
	var now time.Time
	if err == nil {
		err = results.QueryRow().Scan(&now)
	}
	if err != nil {
		return fmt.Errorf("postgres: guard: %w", err)
	}
	var r model.Record
	if err := r.UnmarshalBinary(value); err != nil {
		return fmt.Errorf("postgres: guard: %w", err)
	}
	if !r.Covers(time.Duration(now.UnixNano()), hold.Token()) {
		return fmt.Errorf("postgres: guard: %w", store.ErrLost)
	}
	return nil
}
