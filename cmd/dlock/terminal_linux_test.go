package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
)

// onTerminal starts a script of bash on a terminal of its own, in which "$DLOCK" is dlock. What is written to typed is
// typed there.
func onTerminal(t *testing.T, url, script string) (r *running, typed io.Writer) {
	t.Helper()
	cmd := dlock(t, url)
	path, err := exec.LookPath("script")
	require.NoError(t, err, "script of util-linux makes the terminal")
	cmd.Path = path
	cmd.Args = []string{"script", "-qec", script, "/dev/null"}
	cmd.Env = append(cmd.Env, "SHELL=/bin/bash")
	typed, err = cmd.StdinPipe()
	require.NoError(t, err)
	return start(t, cmd), typed
}

// The command has the terminal, and stty tostop stops other processes that write to it. dlock run writes
// that the lock is lost, and ends as always. A shell with job control would say that it has stopped.
func TestRunWritesToATerminalThatItsCommandHas(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r, _ := onTerminal(t, url, `set -m; stty tostop; "$DLOCK" run --ttl=6s t -- sh -c "echo ready >/dev/tty; exec sleep 600"; echo status $?`)
	r.says("ready")
	got, said := status(t, dlock(t, url, "break", "--yes", "t"))
	require.Equal(t, 0, got, said)
	assert.Equal(t, "123", r.says("status"))
}

// A command asks on the terminal, as ssh and sudo do for a password, though its standard input is no terminal.
func TestRunGivesTheTerminalToACommandThatAsks(t *testing.T) {
	t.Parallel()
	r, typed := onTerminal(t, redistest.Start(t).URL(),
		`"$DLOCK" run t -- sh -c "echo ready >/dev/tty; read word </dev/tty; echo got \$word" </dev/null; read word </dev/tty; echo then $word`)
	r.says("ready")
	io.WriteString(typed, "yes\n")
	assert.Equal(t, "yes", r.says("got"))
	io.WriteString(typed, "more\n")
	assert.Equal(t, "more", r.says("then"), "the terminal was not taken back")
}

// A pager reads the terminal while it shows what the command prints.
func TestRunLeavesTheTerminalToAPager(t *testing.T) {
	t.Parallel()
	end := filepath.Join(t.TempDir(), "end")
	r, typed := onTerminal(t, redistest.Start(t).URL(), `"$DLOCK" run t -- sh -c "echo made; while ! [ -e '`+end+`' ]; do sleep 0.05; done" |
		{ read line; echo ready $line; read word </dev/tty; echo got $word; : >'`+end+`'; }`)
	r.says("ready made")
	io.WriteString(typed, "quit\n")
	assert.Equal(t, "quit", r.says("got"))
}

// A pager that reads while the command has the terminal is stopped, and the signal is for dlock run too. That goes on to
// renew.
func TestRunIsNotStoppedWithItsPager(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	r, typed := onTerminal(t, url, `set -m; "$DLOCK" run --ttl=2s t -- sh -c "echo ready >/dev/tty; read word </dev/tty; echo got \$word >/dev/tty
		echo go; exec sleep 600" | { read line; echo pager $line; read word </dev/tty; echo pager has $word; }`)
	r.says("ready")
	io.WriteString(typed, "yes\n")
	assert.Equal(t, "yes", r.says("got"))
	r.says("pager go")
	got, said := status(t, dlock(t, url, "run", "--wait=4s", "t", "true"))
	assert.Equal(t, 124, got, "two commands run at once: %s", said)
	got, said = status(t, dlock(t, url, "break", "--yes", "t"))
	require.Equal(t, 0, got, said)
	r.says("dlock run: lock t is lost")
	io.WriteString(typed, "more\n")
	assert.Equal(t, "more", r.says("pager has"))
}

// The command has asked on the terminal, and goes on without it. The pager gets it when it reads.
func TestRunGivesTheTerminalBackToAPager(t *testing.T) {
	t.Parallel()
	end := filepath.Join(t.TempDir(), "end")
	r, typed := onTerminal(t, redistest.Start(t).URL(), `set -m; "$DLOCK" run t -- sh -c "echo ready >/dev/tty; read word </dev/tty
		echo got \$word >/dev/tty; echo go; while ! [ -e '`+end+`' ]; do sleep 0.05; done" |
		{ read line; echo pager $line; read word </dev/tty; echo pager has $word; : >'`+end+`'; }; echo status $?`)
	r.says("ready")
	io.WriteString(typed, "yes\n")
	assert.Equal(t, "yes", r.says("got"))
	r.says("pager go")
	io.WriteString(typed, "more\n")
	assert.Equal(t, "more", r.says("pager has"))
	assert.Equal(t, "0", r.says("status"))
}

// The script around dlock run ends before it. Then the shell around the script has the terminal, and keeps it.
func TestRunTakesNoTerminalFromTheShell(t *testing.T) {
	t.Parallel()
	url, dir := redistest.Start(t).URL(), t.TempDir()
	r, typed := onTerminal(t, url, `set -m; cd '`+dir+`'; sh -c 'echo pid $$
		"$DLOCK" run t -- sh -c "echo ready; while ! [ -e end ]; do sleep 0.05; done"; :'; echo back; read word; read word; echo shell has $word`)
	pid, err := strconv.Atoi(r.says("pid"))
	require.NoError(t, err)
	r.says("ready")
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	r.says("back")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	got, said := status(t, dlock(t, url, "run", "--wait=1m", "t", "true"))
	assert.Equal(t, 0, got, said)
	io.WriteString(typed, "no\nyes\n") // the first may have been waited for before
	assert.Equal(t, "yes", r.says("shell has"))
}

// A command in the background that needs the terminal says so, and goes on when fg brings it to the foreground.
func TestRunInTheBackgroundSaysThatItNeedsTheTerminal(t *testing.T) {
	t.Parallel()
	r, typed := onTerminal(t, redistest.Start(t).URL(),
		`set -m; "$DLOCK" run t -- sh -c "read word </dev/tty; echo got \$word" & read word; fg; echo status $?`)
	r.says("dlock run: the command has stopped")
	io.WriteString(typed, "go\n")
	io.WriteString(typed, "yes\n")
	assert.Equal(t, "yes", r.says("got"))
	assert.Equal(t, "0", r.says("status"))
}

// Ctrl-C ends the command, and the script around dlock run too: if the command has the terminal, if it has not, and
// while the lock is waited for.
func TestInterruptEndsTheScriptAroundARun(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for _, script := range []string{
		`for i in 1 2; do "$DLOCK" run t -- sh -c "echo ready; exec sleep 600"; echo wrong; done`,
		`for i in 1 2; do "$DLOCK" run t -- sh -c "echo ready; exec sleep 600" </dev/null; echo wrong; done`,
	} {
		r, typed := onTerminal(t, url, script)
		r.says("ready")
		io.WriteString(typed, "\x03")
		assert.Equal(t, 130, r.ended(), script)
		got, said := status(t, dlock(t, url, "run", "--try", "t", "true"))
		assert.Equal(t, 0, got, "the lock is not given back: %s", said)
	}
	holder := start(t, dlock(t, url, "run", "t", "--", "sh", "-c", "echo ready; exec sleep 600"))
	holder.says("ready")
	r, typed := onTerminal(t, url, `"$DLOCK" run t true; echo wrong`)
	r.says("dlock run: waiting for lock t")
	io.WriteString(typed, "\x03")
	assert.Equal(t, 130, r.ended())
}

// The first process of a container cannot end by a signal.
func TestInterruptOfTheFirstProcess(t *testing.T) {
	t.Parallel()
	if exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "true").Run() != nil {
		t.Skip("this system lets no user make namespaces")
	}
	r, typed := onTerminal(t, redistest.Start(t).URL(), `unshare --user --map-root-user --pid --fork "$DLOCK" run t -- sh -c "echo ready; exec sleep 600"; s=$?; echo; echo status $s`)
	r.says("ready")
	io.WriteString(typed, "\x03") // which the terminal shows
	assert.Equal(t, "130", r.says("status"))
}
