package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

var _ postgres.Hold = (*dlock.Hold)(nil)

// held is a hold as Guard needs it.
type held struct {
	name  string
	token uint64
}

func (h held) Name() string  { return h.name }
func (h held) Token() uint64 { return h.token }

// guarded runs a transaction with Guard in it.
func guarded(t *testing.T, c *pgx.Conn, h held) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error { return postgres.Guard(t.Context(), tx, h) })
}

func TestGuard(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, c := open(t, s.url), connect(t, s.url)
	if err := guarded(t, c, held{"n", 1}); !errors.Is(err, store.ErrLost) {
		t.Errorf("a free lock: got %v, want ErrLost", err)
	}
	req := request("n", 1, false)
	req.Tokens = 3
	g := hold(t, locks, req)
	for _, test := range []struct {
		token uint64
		want  error
	}{{g.Token - 1, store.ErrLost}, {g.Token, nil}, {g.Token + 2, nil}, {g.Token + 3, store.ErrLost}} {
		if err := guarded(t, c, held{"n", test.token}); !errors.Is(err, test.want) {
			t.Errorf("lone hold with tokens from %d, guard with %d: got %v, want %v", g.Token, test.token, err, test.want)
		}
	}
	queue(t, locks, request("n", 2, true)) // the hold is no lone one any more
	if err := guarded(t, c, held{"n", g.Token}); err != nil {
		t.Errorf("with a waiter: got %v", err)
	}
	locks.Break(t.Context(), "n")
	if err := guarded(t, c, held{"n", g.Token}); !errors.Is(err, store.ErrLost) {
		t.Errorf("after Break: got %v, want ErrLost", err)
	}
	short := request("short", 3, false)
	short.TTL = 200 * time.Millisecond
	g = hold(t, locks, short)
	await(t, "the lease has ended", func() bool { return errors.Is(guarded(t, c, held{"short", g.Token}), store.ErrLost) })
	if _, err := c.Exec(t.Context(), "INSERT INTO dlock_locks VALUES ('x', 'foreign', now())"); err != nil {
		t.Fatal(err)
	}
	if err := guarded(t, c, held{"x", 1}); !errors.Is(err, store.ErrForeignKey) {
		t.Errorf("a foreign value: got %v, want ErrForeignKey", err)
	}
	for what, change := range map[string]string{
		"a lease without end":                  "UPDATE dlock_locks SET expires = 'infinity' WHERE name = 'y'",
		"a lease to a year too far away":       "UPDATE dlock_locks SET expires = '9999-12-31' WHERE name = 'y'",
		"an id beside a record of two entries": "UPDATE dlock_locks SET lone = 'id', value = (SELECT value FROM dlock_locks WHERE name = 'two') WHERE name = 'y'",
	} {
		hold(t, locks, request("two", 4, false))
		queue(t, locks, request("two", 5, true))
		g := hold(t, locks, request("y", 6, false))
		if _, err := c.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if err := guarded(t, c, held{"y", g.Token}); !errors.Is(err, store.ErrForeignKey) {
			t.Errorf("%s: got %v, want ErrForeignKey", what, err)
		}
		if _, err := locks.Inspect(t.Context(), "y"); !errors.Is(err, store.ErrForeignKey) {
			t.Errorf("%s: Inspect: got %v, want ErrForeignKey", what, err)
		}
		if g, err := open(t, s.url).Acquire(t.Context(), request("y", 7, false)); !errors.Is(err, store.ErrForeignKey) {
			t.Errorf("%s: another owner got %+v, %v, want ErrForeignKey", what, g, err)
		}
		if names, err := locks.List(t.Context()); err != nil || !slices.Contains(names, "two") || slices.Contains(names, "y") {
			t.Errorf("%s: List: got %q, %v", what, names, err)
		}
		if _, err := c.Exec(t.Context(), "DELETE FROM dlock_locks WHERE name IN ('y', 'two')"); err != nil {
			t.Fatal(err)
		}
	}
	if err := postgres.Guard(t.Context(), nil, held{}); err == nil {
		t.Error("no transaction: got no error")
	}
}

// TestGuardKeepsTheLock: while the guarded transaction is open, nobody else is
// granted the lock, though its lease has ended. Then it is.
func TestGuardKeepsTheLock(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, c := open(t, s.url), connect(t, s.url)
	for _, waiters := range []bool{false, true} {
		name := map[bool]string{false: "lone", true: "contended"}[waiters]
		req := request(name, 1, false)
		req.TTL = time.Second
		g := hold(t, locks, req)
		if waiters {
			queue(t, locks, request(name, 3, true))
		}
		tx, err := c.Begin(t.Context())
		if err == nil {
			err = locks.Guard(t.Context(), tx, held{name, g.Token})
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := time.Now().Add(req.TTL)
		granted := make(chan time.Time, 1)
		go func() {
			for {
				if g, err := locks.Acquire(context.Background(), request(name, 2, true)); err != nil || !g.Held && !waiters {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				granted <- time.Now()
				return
			}
		}()
		await(t, "the lease has ended", func() bool { return time.Now().After(ended.Add(200 * time.Millisecond)) })
		select {
		case <-granted:
			t.Errorf("%s: an answer while the guarded transaction was open", name)
		default:
		}
		committed := time.Now()
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: commit: %v", name, err)
		}
		if at := <-granted; at.Before(committed) {
			t.Errorf("%s: granted %v before the commit", name, committed.Sub(at))
		}
	}
}

// TestGuardDoesNotBlockOtherRenewals: while one lock is guarded, the others of the
// same call are renewed.
func TestGuardDoesNotBlockOtherRenewals(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, c := open(t, s.url), connect(t, s.url)
	var refs []store.Ref
	for n, name := range []string{"a", "guarded", "z"} {
		req := request(name, n+1, false)
		g := hold(t, locks, req)
		refs = append(refs, refOf(req))
		if name != "guarded" {
			continue
		}
		tx, err := c.Begin(t.Context())
		if err == nil {
			err = postgres.Guard(t.Context(), tx, held{name, g.Token})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	errs := locks.Renew(ctx, refs)
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("locks that are not guarded: got %v", errs)
	}
	if errs[1] == nil || certain(errs[1]) {
		t.Errorf("the guarded lock: got %v, want an unknown outcome", errs[1])
	}
}

// TestGuardAfterTakeover: a transaction of a holder that has lost the lock does
// not commit, also under REPEATABLE READ with a snapshot from before.
func TestGuardAfterTakeover(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, c := open(t, s.url), connect(t, s.url)
	req := request("n", 1, false)
	g := hold(t, locks, req)
	tx, err := c.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM dlock_locks"); err != nil {
		t.Fatal(err)
	}
	release(t, locks, req)
	hold(t, locks, request("n", 2, false))
	if err := postgres.Guard(t.Context(), tx, held{"n", g.Token}); err == nil {
		t.Error("Guard with a lost hold: got nil")
	}
}

// ended is a hold that says why it has ended.
type ended struct {
	held
	err error
}

func (e ended) Err() error { return e.err }

// TestGuardAfterUnlock: a hold that was unlocked is not guarded, though the store still
// has the lock with its token, because the process has handed it over by itself.
func TestGuardAfterUnlock(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, c := open(t, s.url), connect(t, s.url)
	g := hold(t, locks, request("n", 1, false))
	guard := func(err error) error {
		return pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
			return postgres.Guard(t.Context(), tx, ended{held{"n", g.Token}, err})
		})
	}
	if err := guard(nil); err != nil {
		t.Errorf("held: got %v", err)
	}
	if err := guard(dlock.ErrNotHeld); !errors.Is(err, store.ErrLost) || !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("unlocked: got %v, want ErrLost with the cause", err)
	}
}
