//go:build unix

package kv_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// directory is a backend over a directory: a file for each name, a file for the
// counter, and flock to keep steps apart. Several processes may share it.
type directory string

func (d directory) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	lock, err := os.OpenFile(filepath.Join(string(d), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // and with it the flock
	for err = syscall.EWOULDBLOCK; errors.Is(err, syscall.EWOULDBLOCK); {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if err != nil {
		return err
	}
	counter := filepath.Join(string(d), "counter")
	text, err := os.ReadFile(counter)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	last, _ := strconv.ParseUint(string(text), 10, 64)
	first := last
	records := make([]kv.Record, len(names))
	for i, name := range names {
		r := &records[i]
		if r.Value, err = os.ReadFile(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.Now, r.Last = time.Now(), last // one machine: its clock is common
		f(i, r)
		last = r.Last
	}
	// The counter first: if this process dies here, tokens are skipped. The
	// other way round a token could be issued twice.
	if last != first {
		if err := d.write(counter, []byte(strconv.FormatUint(last, 10))); err != nil {
			return err
		}
	}
	for i, r := range records {
		switch {
		case !r.Changed:
		case r.Value == nil:
			err = errors.Join(err, ignoreAbsent(os.Remove(d.file(names[i]))))
		default:
			err = errors.Join(err, d.write(d.file(names[i]), r.Value))
		}
	}
	return ignoreAbsent(err)
}

// write replaces a file as a whole, so that a process that dies leaves no half.
func (d directory) write(name string, b []byte) error {
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (d directory) file(name string) string {
	// A file name has at most 255 bytes, so long names go on in directories.
	path, rest := string(d), hex.EncodeToString([]byte(name))
	for ; len(rest) > 200; rest = rest[200:] {
		path = filepath.Join(path, "d"+rest[:200])
		os.MkdirAll(path, 0o700)
	}
	return filepath.Join(path, "n"+rest)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
func (d directory) Names(context.Context) (names []string, err error) {
	err = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name()[0] == 'n' && filepath.Ext(path) == "" {
			var code string
			rel, _ := filepath.Rel(string(d), path)
			for _, part := range strings.Split(rel, string(filepath.Separator)) {
				code += part[1:]
			}
			name, _ := hex.DecodeString(code)
			names = append(names, string(name))
		}
		return ignoreAbsent(err)
	})
	return names, err
}

func (d directory) Close() error { return nil }

// TestDirectory: the backend above, of less than 120 lines, keeps the contract.
func TestDirectory(t *testing.T) {
	conformance.RunSuite(t, conformance.Suite{
		New: func(t testing.TB) store.Store {
			d := directory(t.TempDir())
			return handle{open(t, d, nil), d, t}
		},
		Parallel: 8,
	})
}

// TestTortureDirectory: processes that share the directory and are killed.
func TestTortureDirectory(t *testing.T) {
	const dirVar = "DLOCK_TEST_DIRECTORY"
	conformance.Torture(t, func(t testing.TB) store.Store {
		dir := os.Getenv(dirVar)
		if dir == "" {
			dir = t.TempDir()
			t.Setenv(dirVar, dir)
		}
		return open(t, directory(dir), nil)
	})
}
