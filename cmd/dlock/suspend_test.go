//go:build unix

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/redistest"
)

// Ctrl-Z stops nothing. Without a terminal on its standard input, dlock run is in the foreground
// and the command is in another process group, which Ctrl-Z does not reach: if dlock stopped,
// nothing would renew, and the next owner would run beside the command.
func TestSuspendedRunGoesOnToRenew(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	cmd := dlock(t, url, "run", "--ttl=2s", "z", "--", "sh", "-c", "echo pid $$; exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the kernel stops no process of an orphaned group
	r := start(t, cmd)
	pid := r.says("pid")
	r.signal(syscall.SIGTSTP)
	got, out := status(t, dlock(t, url, "run", "--wait=4s", "z", "true"))
	assert.Equal(t, 124, got, "two commands run at once: %s", out)
	assert.True(t, runs(pid), "the command does not run")
	r.signal(syscall.SIGTERM)
	assert.Equal(t, 143, r.ended())
}
