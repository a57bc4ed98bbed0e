//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
)

// Kill -9 of dlock run ends the whole command at once, and the lease frees the lock.
func TestKilledRunTakesItsCommandAlong(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r := start(t, dlock(t, url, "run", "--ttl=2s", "k", "--", "sh", "-c", "sleep 600 & echo pid $$ $!; wait"))
	pids := strings.Fields(r.says("pid"))
	r.signal(syscall.SIGKILL)
	began := time.Now()
	gone(t, pids...)
	t.Logf("the command was gone after %v", time.Since(began))
	got, out := status(t, dlock(t, url, "run", "--wait=1m", "k", "true"))
	assert.Equal(t, 0, got, out)
}

func TestKilledCommandFreesTheLock(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r := start(t, dlock(t, url, "run", "--ttl=10m", "k", "--", "sh", "-c", "echo pid $$; exec sleep 600"))
	pid, err := strconv.Atoi(r.says("pid"))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	assert.Equal(t, 137, r.ended())
	got, out := status(t, dlock(t, url, "run", "--try", "k", "true"))
	assert.Equal(t, 0, got, out)
}

// When the server dies, the command ends before its lease can: the lease began before the kill.
func TestKilledServerEndsTheCommandWithinItsLease(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for name, script := range map[string]string{
		"obeys":   `trap 'echo terminated; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done`,
		"refuses": `trap '' TERM; echo pid $$; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := start(t, dlock(t, server.URL(), "run", "--ttl="+ttl.String(), "k", "--", "sh", "-c", script))
			pid := r.says("pid")
			server.Kill()
			killed := time.Now()
			gone(t, pid)
			lasted := time.Since(killed)
			t.Logf("the command lasted for %v of %v", lasted, ttl)
			assert.Less(t, lasted, ttl)
			if name == "obeys" {
				r.says("terminated")
			}
			assert.Equal(t, 123, r.ended())
		})
	}
}

func TestBrokenLockKillsTheCommand(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r := start(t, dlock(t, url, "run", "--ttl=6s", "b", "--", "sh", "-c", "sleep 600 & echo pid $$ $!; wait"))
	pids := strings.Fields(r.says("pid"))
	got, out := status(t, dlock(t, url, "break", "--yes", "b"))
	assert.Equal(t, 0, got, out)
	gone(t, pids...)
	assert.Equal(t, 123, r.ended())
}

// timeout and setsid lead a process group of their own. After a loss, and a kill -9 of dlock run, what they have
// started ends all the same.
func TestCommandThatLeavesTheGroupEnds(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for _, starter := range [][]string{{"timeout", "600"}, {"setsid"}} {
		for _, lost := range []bool{true, false} {
			args := append([]string{"run", "--ttl=6s", "l", "--"}, starter...)
			r := start(t, dlock(t, url, append(args, "sh", "-c", "sleep 600 & echo pid $$ $!; wait")...))
			pids := strings.Fields(r.says("pid"))
			if lost {
				got, out := status(t, dlock(t, url, "break", "--yes", "l"))
				assert.Equal(t, 0, got, out)
			} else {
				guarded(t, r)
				r.signal(syscall.SIGKILL)
			}
			gone(t, pids...)
			r.ended()
		}
	}
}

// guarded waits until dlock run has told the guard of the command. From then on it ignores SIGTTOU.
func guarded(t *testing.T, r *running) {
	t.Helper()
	ignores := func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
		text, _, _ := strings.Cut(rest, "\n")
		mask, err := strconv.ParseUint(text, 16, 64)
		return err == nil && mask>>(syscall.SIGTTOU-1)&1 == 1
	}
	require.Eventually(t, ignores, long, time.Millisecond, "dlock run does not ignore SIGTTOU")
}

// Ctrl-C after the lock was lost does not hide the loss.
func TestLossIsToldAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r := start(t, dlock(t, url, "run", "--ttl=10m", "b", "--", "sh", "-c", "echo ready; exec sleep 600"))
	r.says("ready")
	got, out := status(t, dlock(t, url, "break", "--yes", "b"))
	assert.Equal(t, 0, got, out)
	r.signal(syscall.SIGINT)
	r.says("dlock run: lock b is lost")
	assert.Equal(t, 123, r.ended())
}
