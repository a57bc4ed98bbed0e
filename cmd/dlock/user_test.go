//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/process"
	"github.com/dlock-go/dlock/internal/redistest"
)

// A command that runs as another user cannot be killed, and dlock run says so at once.
func TestCommandOfAnotherUserIsTold(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("root alone can make a program that runs as root for others")
	}
	dir, err := os.MkdirTemp("/tmp", "dlock-setuid-") // where every user may pass
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	install := func(from, name string, mode os.FileMode) string {
		program, err := os.ReadFile(from)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		syscall.ForkLock.RLock() // a child that gets the open file keeps the program from being run
		err = os.WriteFile(path, program, 0o755)
		syscall.ForkLock.RUnlock()
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	setpriv, err := exec.LookPath("setpriv") // as sudo does, it becomes another user altogether
	require.NoError(t, err)
	url := redistest.Start(t).URL()
	cmd := dlock(t, url, "run", "--ttl=6s", "u", "--", install(setpriv, "setpriv", 0o755|os.ModeSetuid),
		"--reuid=0", "sh", "-c", "echo pid $$; exec sleep 600")
	cmd.Path = install(cmd.Path, "dlock", 0o755)
	cmd.Dir = dir
	process.As(cmd, 65534, 65534) // nobody
	r := start(t, cmd)
	pid, err := strconv.Atoi(r.says("pid"))
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	got, said := status(t, dlock(t, url, "break", "--yes", "u"))
	require.Equal(t, 0, got, said)
	r.says("dlock run: the command runs as another user and cannot be killed")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	assert.Equal(t, 123, r.ended())
}
