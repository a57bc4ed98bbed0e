//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/postgres"
)

// asDlock makes a process of the test program be dlock itself, with the race detector. The
// commands of these tests inherit it, so "$DLOCK" in a script is dlock too.
const asDlock = "DLOCK_TEST_IS_DLOCK"

// long bounds what takes a moment, on a machine that is busy.
const long = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asDlock) != "" {
		main()
		return
	}
	// A shell without job control, and nohup, have what they run ignore signals, and so would each command of
	// a test. One whose parent handles a signal begins with the default.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// dlock returns a command that was not started. Its output goes to the test's log if the test
// fails.
func dlock(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asDlock+"=1", "DLOCK="+self, "DLOCK_STORE="+url)
	return cmd
}

// status runs a command to its end and returns its exit status and what it printed.
func status(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return exit(cmd.ProcessState), string(out)
}

// exit returns the exit status as a shell has it.
func exit(state *os.ProcessState) int {
	if w := state.Sys().(syscall.WaitStatus); w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}

// running is a command that runs.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of its output
	done  chan struct{}
}

func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd, lines: make(chan string, 100), done: make(chan struct{})}
	out, in := io.Pipe()
	var text bytes.Buffer
	cmd.Stdout = in
	cmd.Stderr = io.MultiWriter(in, &text)
	require.NoError(t, cmd.Start())
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			r.lines <- lines.Text()
		}
	}()
	go func() {
		cmd.Wait()
		in.Close()
		close(r.done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() // it fails if the process has ended
		r.ended()
		if t.Failed() {
			t.Logf("%q: %s", cmd.Args[1:], &text)
		}
	})
	return r
}

// says returns the next line that begins with the text, without the text.
func (r *running) says(text string) string {
	r.t.Helper()
	limit := time.After(long)
	for {
		select {
		case line := <-r.lines:
			if rest, ok := strings.CutPrefix(line, text); ok {
				return strings.TrimSpace(rest)
			}
		case <-limit:
			r.t.Fatalf("%q does not print %q", r.cmd.Args[1:], text)
		}
	}
}

// ended waits for the end and returns the exit status.
func (r *running) ended() int {
	r.t.Helper()
	select {
	case <-r.done:
		return exit(r.cmd.ProcessState)
	case <-time.After(long):
		r.t.Fatalf("%q does not end", r.cmd.Args[1:])
		return 0
	}
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
}

// stateOf returns the letter for the state of a process, "X" if it is not there.
func stateOf(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "X"
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

// runs reports whether a process is there and is no zombie.
func runs(pid string) bool { return stateOf(pid) != "Z" && stateOf(pid) != "X" }

func gone(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !runs(pid) }, long, 5*time.Millisecond, "process %s goes on", pid)
	}
}

func postgresURL(t *testing.T) string {
	url := postgrestest.Start(t).URL()
	connection, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer connection.Close(context.Background())
	require.NoError(t, postgres.Migrate(t.Context(), connection, ""))
	return url
}

// Two runs are never under way at once: 100 commands, each of which reads a number from a file
// and writes the next one, lose no step.
func TestTwoRunsAreNeverAtOnce(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name  string
		tries int
		url   func(t *testing.T) string
	}{
		{"redis", 40, func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"postgres", 30, postgresURL},
		{"etcd", 30, func(t *testing.T) string { return etcdtest.Start(t, 1).URL() }},
	} {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			url, dir := store.url(t), t.TempDir()
			count := filepath.Join(dir, "count")
			require.NoError(t, os.WriteFile(count, []byte("0\n"), 0o600))
			script := `mkdir busy || { echo overlap; exit 9; }; read n <count; echo $((n+1)) >count; rmdir busy`
			var wg sync.WaitGroup
			turns := make(chan struct{}, 5)
			for range store.tries {
				turns <- struct{}{}
				wg.Go(func() {
					defer func() { <-turns }()
					cmd := dlock(t, url, "run", "--quiet", "counter", "--", "sh", "-c", script)
					cmd.Dir = dir
					out, err := cmd.CombinedOutput()
					assert.NoError(t, err, "%s", out)
				})
			}
			wg.Wait()
			text, err := os.ReadFile(count)
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(store.tries), strings.TrimSpace(string(text)))
		})
	}
}

func TestExitStatusAndSignalsPass(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -KILL $$": 137} {
		got, out := status(t, dlock(t, url, "run", "s", "--", "sh", "-c", script))
		assert.Equal(t, want, got, "%s: %s", script, out)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		script := fmt.Sprintf(`trap 'echo got; exit 42' %d; echo ready; while :; do sleep 0.05; done`, int(s))
		r := start(t, dlock(t, url, "run", "s", "--", "sh", "-c", script))
		r.says("ready")
		r.signal(s)
		r.says("got")
		assert.Equal(t, 42, r.ended(), "%v", s)
	}
	// A shell ends by SIGTERM, and what it runs ends with it.
	r := start(t, dlock(t, url, "run", "s", "--", "sh", "-c", "sleep 600 & echo pid $!; wait"))
	pid := r.says("pid")
	r.signal(syscall.SIGTERM)
	assert.Equal(t, 143, r.ended())
	gone(t, pid)
	// So does a command that is stopped.
	r = start(t, dlock(t, url, "run", "s", "--", "sh", "-c", "echo pid $$; kill -STOP $$; echo wrong"))
	pid = r.says("pid")
	require.Eventually(t, func() bool { return stateOf(pid) == "T" }, long, 5*time.Millisecond)
	r.signal(syscall.SIGTERM)
	assert.Equal(t, 143, r.ended())
	// A signal ends a run that waits, and its command is never run.
	holder := start(t, dlock(t, url, "run", "s", "--", "sh", "-c", "echo ready; sleep 600"))
	holder.says("ready")
	waiter := start(t, dlock(t, url, "run", "s", "--", "sh", "-c", "echo wrong"))
	waiter.says("dlock run: waiting for lock s, held by")
	waiter.signal(syscall.SIGINT)
	assert.Equal(t, 130, waiter.ended())
	holder.signal(syscall.SIGTERM)
	assert.Equal(t, 143, holder.ended())
	got, out := status(t, dlock(t, url, "run", "--try", "s", "true"))
	assert.Equal(t, 0, got, "the lock is not free after the runs: %s", out)
}

func TestNestedRuns(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	got, out := status(t, dlock(t, url, "run", "outer", "--", "sh", "-c",
		`"$DLOCK" run --try outer -- sh -c '"$DLOCK" run --try other -- "$DLOCK" run --try outer -- sh -c "echo deep; exit 5"'`))
	assert.Equal(t, 5, got, out)
	assert.Contains(t, out, "deep")
	// Inside one run, two runs of another name exclude each other.
	script := `"$DLOCK" run other -- sh -c 'echo held >here; while [ ! -e tried ]; do sleep 0.05; done' &
		while [ ! -e here ]; do sleep 0.05; done
		"$DLOCK" run --try other true; echo status $?; echo >tried; wait`
	cmd := dlock(t, url, "run", "outer", "--", "sh", "-c", script)
	cmd.Dir = t.TempDir()
	_, out = status(t, cmd)
	assert.Contains(t, out, "status 124")
}

func TestCommandsOnRealStores(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"postgres": postgresURL,
		"quorum": func(t *testing.T) string {
			return strings.Join([]string{redistest.Start(t).URL(), redistest.Start(t).URL(), redistest.Start(t).URL()}, " ")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := open(t)
			// A quorum grants nothing until its servers have been up for a lease.
			require.Eventually(t, func() bool {
				got, _ := status(t, dlock(t, url, "run", "--ttl=2s", "job", "true"))
				return got == 0
			}, long, 10*time.Millisecond)
			r := start(t, dlock(t, url, "run", "--ttl=2s", "job", "--", "sh", "-c", "echo token $DLOCK_TOKEN; sleep 600"))
			token := r.says("token")
			_, out := status(t, dlock(t, url, "inspect", "job"))
			assert.Contains(t, out, token)
			assert.Contains(t, out, "job: 1 holder, 0 waiters")
			_, out = status(t, dlock(t, url, "check"))
			assert.NotContains(t, out, "unreachable")
			_, out = status(t, dlock(t, url, "list", "--names"))
			assert.Equal(t, "job\n", out)
		})
	}
	got, out := status(t, dlock(t, "redis://127.0.0.1:1", "list"))
	assert.Equal(t, 125, got)
	assert.Contains(t, out, "dlock list: ")
}

// Nobody reads what dlock run prints, as when the connection of a terminal is cut. It goes on: here it
// tells of a loss, and ends as always.
func TestClosedOutputDoesNotEndARun(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	cmd := dlock(t, url, "run", "--ttl=6s", "p", "--", "sh", "-c", "echo ready; exec sleep 600")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	read.Close()
	cmd.Stderr = write
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	write.Close()
	t.Cleanup(func() { cmd.Process.Kill() }) // it fails if the process has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	got, said := status(t, dlock(t, url, "break", "--yes", "p"))
	require.Equal(t, 0, got, said)
	cmd.Wait()
	assert.Equal(t, 123, cmd.ProcessState.ExitCode(), "%v", cmd.ProcessState)
}
