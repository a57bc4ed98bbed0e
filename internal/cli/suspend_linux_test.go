package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command that stops before dlock run hears of stops is continued too.
func TestCommandThatStopsAtOnceIsContinued(t *testing.T) {
	cmd := exec.Command("sh", "-c", "kill -STOP $$; exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	}, 30*time.Second, time.Millisecond)
	term := &terminal{given: true}
	term.keepRunning(pid, pid, io.Discard)
	defer term.stop()
	killed := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer killed.Stop()
	cmd.Wait()
	assert.Equal(t, 7, cmd.ProcessState.ExitCode(), "the command was not continued")
}
