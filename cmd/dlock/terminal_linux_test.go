package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
)

// The command has the terminal, and stty tostop stops other processes that write to it. dlock run writes
// that the lock is lost, and ends as always. A shell with job control would say that it has stopped.
func TestRunWritesToATerminalThatItsCommandHas(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	cmd := dlock(t, url)
	script, err := exec.LookPath("script")
	require.NoError(t, err, "script of util-linux makes the terminal")
	cmd.Path = script
	cmd.Args = []string{"script", "-qec", `set -m; stty tostop; "$DLOCK" run --ttl=6s t -- sh -c "echo ready >/dev/tty; exec sleep 600"; echo status $?`, "/dev/null"}
	cmd.Env = append(cmd.Env, "SHELL=/bin/sh")
	r := start(t, cmd)
	r.says("ready")
	got, said := status(t, dlock(t, url, "break", "--yes", "t"))
	require.Equal(t, 0, got, said)
	assert.Equal(t, "123", r.says("status"))
}
