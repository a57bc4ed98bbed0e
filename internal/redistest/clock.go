package redistest

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
var clockSource []byte

// Clock is the wall clock of a server.
type Clock struct {
	t    testing.TB
	file *os.File
}

// StartWithClock is Start for a server, on Linux, whose wall clock the test
// holds; its monotonic clock is that of the machine. It compiles a library with
// gcc that is preloaded into the server, and fails the test without gcc. At
// first the clock is right.
func StartWithClock(t testing.TB, config ...string) (*Server, *Clock) {
	t.Helper()
	dir := t.TempDir()
	source, library, offset := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatalf("redistest: cannot write the clock: %v", err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("redistest: cannot compile the clock with gcc: %v\n%s", err, out)
	}
	file, err := os.OpenFile(offset, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatalf("redistest: cannot make the offset of the clock: %v", err)
	}
	t.Cleanup(func() { file.Close() })
	c := &Clock{t, file}
	c.Jump(0)
	return launch(t, kind{
		lines: func(port, _ int) []string { return append(standalone(port), config...) },
		env:   []string{"LD_PRELOAD=" + library, "DLOCK_CLOCK=" + offset},
	}), c
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
		c.t.Fatalf("redistest: the clock does not jump: %v", err)
	}
}
