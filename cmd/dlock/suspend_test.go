//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/redistest"
)

// A dlock run that is stopped renews nothing and kills nothing. The guard kills the command while the lease lasts.
func TestStoppedRunEndsItsCommandWithinTheLease(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r := start(t, dlock(t, url, "run", "--ttl=10s", "z", "--", "timeout", "600", "sh", "-c", "echo pid $$; exec sleep 600"))
	pid := r.says("pid")
	time.Sleep(11 * time.Second) // longer than the first lease: the guard has heard of a renewal
	assert.True(t, runs(pid), "the command was ended without need")
	r.signal(syscall.SIGSTOP)
	next := start(t, dlock(t, url, "run", "z", "--", "sh", "-c", "echo mine"))
	next.says("mine")
	assert.False(t, runs(pid), "two commands run at once")
	r.signal(syscall.SIGCONT)
	assert.Equal(t, 123, r.ended())
}

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
