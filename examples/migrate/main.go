// Migrate changes the tables of a database. Any number of instances may start at once, as in a
// roll-out: one migrates, and the others wait for it and find the work done.
//
//	go run ./examples/migrate -url postgres://localhost/app
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/postgres"
)

// steps are the changes, in order. Add to the end.
var steps = []string{
	`CREATE TABLE article (sku text PRIMARY KEY, units int NOT NULL)`,
	`ALTER TABLE article ADD COLUMN price int NOT NULL DEFAULT 0`,
	`INSERT INTO article VALUES ('mug', 100, 1200)`,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	url := flags.String("url", "postgres://localhost/app", "`URL` of the database")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, *url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, ""); err != nil { // the table of the locks
		return err
	}
	locks, err := postgres.New(pool, nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	client, err := dlock.New(locks, nil)
	if err != nil {
		return err
	}
	defer client.Close()

	hold, err := client.Mutex("migrate").LockContext(ctx) // waits for the instance that migrates
	if err != nil {
		return err
	}
	defer hold.Unlock()
	done, err := migrate(hold.Context(ctx), pool, hold)
	fmt.Fprintf(out, "%d steps done\n", done)
	return err
}

// migrate does the steps that the database lacks, and returns how many.
func migrate(ctx context.Context, pool *pgxpool.Pool, hold *dlock.Hold) (done int, err error) {
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS version (step int PRIMARY KEY)`); err != nil {
		return 0, err
	}
	var first int
	if err := pool.QueryRow(ctx, `SELECT coalesce(max(step) + 1, 0) FROM version`).Scan(&first); err != nil {
		return 0, err
	}
	for i := first; i < len(steps); i++ {
		// Step and version are one transaction. It commits only while the lock is held, so an
		// instance that was stopped for too long changes nothing.
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, steps[i]); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `INSERT INTO version VALUES ($1)`, i); err != nil {
				return err
			}
			return postgres.Guard(ctx, tx, hold)
		})
		if err != nil {
			return done, fmt.Errorf("step %d: %w", i, err)
		}
		done++
	}
	return done, nil
}
