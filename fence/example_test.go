package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/store/memory"
)

// account is what the lock protects. It checks who comes.
type account struct {
	gate    fence.Gate
	balance int
}

func (a *account) read(token uint64) (balance int, err error) {
	err = a.gate.Do(token, func() error { balance = a.balance; return nil })
	return balance, err
}

func (a *account) write(token uint64, balance int) error {
	return a.gate.Do(token, func() error { a.balance = balance; return nil })
}

// One holder is stopped between reading and writing, for longer than its lease,
// and another one has the lock when it goes on.
func Example() {
	ctx := context.Background()
	client, err := dlock.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.Mutex("account/1", dlock.WithTTL(time.Second), dlock.WithoutRenewal())
	account := &account{balance: 100}

	stopped, err := lock.LockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	old, _ := account.read(stopped.Token())

	next, err := lock.LockContext(ctx) // waits until the lease has run out
	if err != nil {
		log.Fatal(err)
	}
	balance, _ := account.read(next.Token())

	fmt.Println("stopped:", account.write(stopped.Token(), old-30))
	fmt.Println("next:", account.write(next.Token(), balance-50))
	fmt.Println("balance:", account.balance)
	// Output:
	// stopped: fence: stale token 1: the highest seen is 2
	// next: <nil>
	// balance: 50
}

// Inside Do, the token comes from the context.
func ExampleGate() {
	client, err := dlock.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var gate fence.Gate
	err = client.Mutex("account/1").Do(context.Background(), func(ctx context.Context) error {
		token, _ := dlock.TokenFrom(ctx)
		return gate.Admit(token)
	})
	fmt.Println(err, gate.Highest())
	fmt.Println(errors.Is(gate.Admit(0), fence.ErrStale))
	// Output:
	// <nil> 1
	// true
}

// A row in PostgreSQL or SQLite.
func Example_sql() {
	read := func(ctx context.Context, db *sql.DB, token uint64, id string) (value sql.NullString, err error) {
		err = db.QueryRowContext(ctx, fence.SQLRead, token, id).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			err = fence.ErrStale
		}
		return value, err
	}
	write := func(ctx context.Context, db *sql.DB, token uint64, id, value string) error {
		result, err := db.ExecContext(ctx, fence.SQLWrite, token, id, value)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); n > 0 || err != nil {
			return err
		}
		return fence.ErrStale
	}
	_, _ = read, write
}
