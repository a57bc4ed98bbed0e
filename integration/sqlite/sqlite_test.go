package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/integration/sqlite"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// handle is a store that knows its file.
type handle struct {
	*kv.Store
	file string
}

func open(t testing.TB, file string) store.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	return handle{s, file}
}

// database opens the file of a store beside it.
func database(t testing.TB, s store.Store) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.(handle).file+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) {
	conformance.RunSuite(t, conformance.Suite{
		New:  func(t testing.TB) store.Store { return open(t, filepath.Join(t.TempDir(), "locks.db")) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(handle).file) },
		Plant: func(t testing.TB, s store.Store, name string) {
			db := database(t, s)
			defer db.Close()
			if _, err := db.Exec("INSERT INTO locks VALUES (?, 'a value of another program')", []byte(name)); err != nil {
				t.Fatal(err)
			}
		},
		Stall: func(t testing.TB, s store.Store) (resume func()) {
			db := database(t, s)
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				tx.Rollback()
				db.Close()
			}
		},
		Footprint: func(s store.Store) (n int) {
			db, err := sql.Open("sqlite", "file:"+s.(handle).file)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.QueryRow("SELECT count(*) FROM locks").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		Parallel: 6,
		Deadline: 2 * time.Minute, // each call waits for the disk, and a case may have a thousand
	})
}

// TestTorture: processes that are killed leave no lock behind.
func TestTorture(t *testing.T) {
	const fileVar = "DLOCK_TEST_SQLITE"
	conformance.Torture(t, func(t testing.TB) store.Store {
		file := os.Getenv(fileVar)
		if file == "" {
			file = filepath.Join(t.TempDir(), "locks.db")
			t.Setenv(fileVar, file)
		}
		return open(t, file)
	})
}

// TestDocument: docs/writing-a-store.md shows this package as it is compiled.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/writing-a-store.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("sqlite.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(source), "\n"); lines > 120 {
		t.Errorf("the example has %d lines, want 120 at most", lines)
	}
	_, shown, _ := strings.Cut(string(document), "```go\n// Package sqlite")
	shown, _, ok := strings.Cut(shown, "\n```")
	if !ok || "// Package sqlite"+shown+"\n" != string(source) {
		t.Error("docs/writing-a-store.md does not show integration/sqlite/sqlite.go as it is")
	}
}
