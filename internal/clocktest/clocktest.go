// Package clocktest gives a server, on Linux, a wall clock that a test holds. The server's
// monotonic clock is that of the machine.
package clocktest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// In testdata, as Go refuses C in a package without cgo.
//
//go:embed testdata/clock.c
var source []byte

// Clock is the wall clock of a server.
type Clock struct {
	t    testing.TB
	file *os.File
}

// New returns a clock that is right at first, and what the environment of a server has to
// have for it. It compiles a library in dir with gcc that is preloaded into the server,
// and fails the test without gcc. The user of the server has to be able to read dir.
func New(t testing.TB, dir string) (c *Clock, env []string) {
	t.Helper()
	code, library, offset := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		t.Fatalf("clocktest: cannot write the clock: %v", err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, code).CombinedOutput(); err != nil {
		t.Fatalf("clocktest: cannot compile the clock with gcc: %v\n%s", err, out)
	}
	file, err := os.OpenFile(offset, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatalf("clocktest: cannot make the offset of the clock: %v", err)
	}
	t.Cleanup(func() { file.Close() })
	c = &Clock{t, file}
	c.Jump(0)
	return c, []string{"LD_PRELOAD=" + library, "DLOCK_CLOCK=" + offset}
}

// Jump sets the wall clock to d after the true time, or before it if d is
// negative, whatever it was before. The server sees it as soon as Jump returns,
// except that Redis goes on with a time that it has cached for the command in
// hand. A restart does not set the clock right. It may be called concurrently.
func (c *Clock) Jump(d time.Duration) {
	c.t.Helper()
	var offset [8]byte
	binary.NativeEndian.PutUint64(offset[:], uint64(d))
	if _, err := c.file.WriteAt(offset[:], 0); err != nil {
		c.t.Fatalf("clocktest: the clock does not jump: %v", err)
	}
}
