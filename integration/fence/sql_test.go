// Package fence_test runs the SQL statements of package fence: with numbered
// parameters on PostgreSQL and SQLite, and with bare ones, as MySQL has them, on
// SQLite.
package fence_test

import (
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/postgrestest"
)

// row is the one with id "r", in one of the forms.
type row struct {
	t         *testing.T
	write     func(token uint64, value string) (sql.Result, error)
	queryRead func(token uint64) *sql.Row
}

func (r row) set(token uint64, value string) error {
	result, err := r.write(token, value)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = fence.ErrStale
	}
	return err
}

func (r row) get(token uint64) (value sql.NullString, err error) {
	err = r.queryRead(token).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = fence.ErrStale
	}
	return value, err
}

// numbered is the form of PostgreSQL.
func numbered(t *testing.T, db *sql.DB) row {
	return row{
		t: t,
		write: func(token uint64, value string) (sql.Result, error) {
			return db.Exec(fence.SQLWrite, token, "r", value)
		},
		queryRead: func(token uint64) *sql.Row { return db.QueryRow(fence.SQLRead, token, "r") },
	}
}

// inBothForms runs a test on a new row.
func inBothForms(t *testing.T, test func(t *testing.T, r row)) {
	for name, form := range map[string]func(t *testing.T, db *sql.DB) row{
		"numbered":   numbered,
		"PostgreSQL": numbered,
		"bare": func(t *testing.T, db *sql.DB) row {
			return row{
				t: t,
				write: func(token uint64, value string) (sql.Result, error) {
					return db.Exec(fence.MySQLWrite, value, token, "r", token)
				},
				queryRead: func(token uint64) *sql.Row {
					if _, err := db.Exec(fence.MySQLRaise, token, "r", token); err != nil {
						t.Error(err)
					}
					return db.QueryRow(fence.MySQLRead, "r", token)
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver, address := "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
			if name == "PostgreSQL" {
				driver, address = "pgx", postgrestest.Start(t).URL()
			}
			db, err := sql.Open(driver, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			for _, statement := range []string{fence.SQLTable, `INSERT INTO fenced (id, value) VALUES ('r', NULL), ('s', 'other')`} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			test(t, form(t, db))
			var token uint64
			var value string
			if err := db.QueryRow(`SELECT token, value FROM fenced WHERE id = 's'`).Scan(&token, &value); token != 0 || value != "other" || err != nil {
				t.Errorf("the other row has token %d and value %q, %v", token, value, err)
			}
		})
	}
}

func (r row) reads(token uint64, want sql.NullString) {
	r.t.Helper()
	if got, err := r.get(token); got != want || err != nil {
		r.t.Fatalf("read with %d: %v, %v, want %v", token, got, err, want)
	}
}

func (r row) writes(token uint64, value string) {
	r.t.Helper()
	if err := r.set(token, value); err != nil {
		r.t.Fatalf("write with %d: %v", token, err)
	}
	r.reads(token, sql.NullString{String: value, Valid: true})
}

func (r row) refuses(token uint64) {
	r.t.Helper()
	if err := r.set(token, "stale"); !errors.Is(err, fence.ErrStale) {
		r.t.Fatalf("write with %d: %v, want a refusal", token, err)
	}
	if got, err := r.get(token); !errors.Is(err, fence.ErrStale) {
		r.t.Fatalf("read with %d: %v, %v, want a refusal", token, got, err)
	}
}

func TestLowerTokensAreRefused(t *testing.T) {
	inBothForms(t, func(t *testing.T, r row) {
		r.reads(41, sql.NullString{})
		r.refuses(40) // by a read alone
		r.writes(41, "a")
		r.writes(41, "a") // nothing changes, and it is no refusal
		r.writes(41, "b")
		r.reads(42, sql.NullString{String: "b", Valid: true})
		r.refuses(41)
		r.reads(42, sql.NullString{String: "b", Valid: true})
		for _, token := range []uint64{100, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64} {
			r.refuses(9)
			r.writes(token, strconv.FormatUint(token, 10))
			r.refuses(token - 1)
		}
		if err := r.set(1<<63, "too high"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Fatalf("a token that no BIGINT has room for: %v", err)
		}
	})
}

// Whoever is admitted has no lower token than was admitted before it began.
func TestAdmittedTokensNeverDecrease(t *testing.T) {
	inBothForms(t, func(t *testing.T, r row) {
		var highest fence.Gate
		var refused atomic.Bool
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() {
				for range 100 {
					floor := highest.Highest()
					token := floor - min(floor, 5) + rand.Uint64N(8)
					var err error
					if rand.N(2) == 0 {
						_, err = r.get(token)
					} else {
						err = r.set(token, strconv.FormatUint(token, 10))
					}
					switch {
					case errors.Is(err, fence.ErrStale):
						refused.Store(true)
					case err != nil:
						t.Error(err)
						return
					case token < floor:
						t.Errorf("%d was admitted after %d", token, floor)
					default:
						highest.Admit(token) // or a higher one was quicker to tell
					}
				}
			})
		}
		running.Wait()
		if !refused.Load() {
			t.Error("nothing was refused")
		}
	})
}
