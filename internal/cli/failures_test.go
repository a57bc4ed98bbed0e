package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/lockview"
)

// full is an output that nothing can be written to, as a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A script that reads a part of the output must not take it for all.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	s := newShell(t)
	s.hold("a")
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"list", "--names"}, {"list", "--names", "--json"}, {"inspect", "a"}, {"inspect", "free"},
		{"inspect", "a", "--json"}, {"watch"}, {"watch", "a"}, {"watch", "--json"}, {"break", "free"}, {"version"}, {"version", "--json"},
		{"help"}, {"help", "run"}, {"completion", "bash"}, {"break", "--yes", "--json", "a"}, {"check", "--json"},
	} {
		if args[0] == "check" { // it has something to say of a store that fails
			s.locks.Close()
		}
		var errs locktest.Buffer
		p := s.program()
		p.Stdout, p.Stderr = full{}, &errs
		assert.Equal(t, exitFailed, p.Run(args), "%q", args)
		assert.Equal(t, "dlock "+args[0]+": no space left on device\n", errs.String(), "%q", args)
	}
}

func TestStoreThatFailsIsAFailure(t *testing.T) {
	s := newShell(t)
	hold := s.hold("a")
	p := s.program()
	p.Stdout, p.Stderr = io.Discard, io.Discard
	p.Stdin = changing{func() { s.locks.Close() }, strings.NewReader("y\n")}
	assert.Equal(t, exitFailed, p.Run([]string{"break", "a"}), "the store fails after the question")
	for _, args := range [][]string{{"list"}, {"inspect", "a"}, {"break", "a"}, {"break", "--yes", "a"}, {"run", "a", "true"}} {
		status, out, errs := s.dlock(args...)
		assert.Equal(t, exitFailed, status, "%q", args)
		assert.Empty(t, out, "%q", args)
		assert.Contains(t, errs, "closed", "%q", args)
	}
	hold.Unlock()
}

// An operator that watches wants to see when the store is back.
func TestWatchOutlastsAStoreThatFails(t *testing.T) {
	for _, args := range [][]string{{"watch", "--every=100ms"}, {"watch", "a", "--every=100ms", "--json"}} {
		s := newShell(t)
		s.hold("a")
		s.hold("b")
		ctx, cancel := context.WithCancel(t.Context())
		out := &steps{then: []func(){func() { s.locks.Close() }, cancel}}
		p := s.program()
		p.Stdout, p.Context = out, ctx
		assert.Equal(t, exitOK, p.Run(args))
		assert.Contains(t, out.String(), "host-a/1")
		assert.Contains(t, out.String(), "closed", "%q", args)
	}
}

func TestWatchSaysHowManyItLeavesOut(t *testing.T) {
	s := newShell(t)
	s.hold("a")
	s.hold("b")
	s.hold("c")
	ctx, cancel := context.WithCancel(t.Context())
	out := &steps{then: []func(){cancel}}
	p := s.program()
	p.Stdout, p.Context = out, ctx
	assert.Equal(t, exitOK, p.Run([]string{"watch", "--limit=1"}))
	assert.Regexp(t, `(?m)^a +exclusive +host-a/1 `, out.String())
	assert.Contains(t, out.String(), "\n2 more\n")
}

// The end of the program ends the question too: nobody may answer it.
func TestBreakThatIsNotAnsweredEndsWithItsContext(t *testing.T) {
	s := newShell(t)
	s.hold("a")
	ctx, cancel := context.WithCancel(t.Context())
	in, answer := io.Pipe()
	defer answer.Close()
	p := s.program()
	p.Stdin, p.Stdout, p.Stderr, p.Context = io.MultiReader(calls(cancel), in), io.Discard, io.Discard, ctx
	assert.Equal(t, exitFailed, p.Run([]string{"break", "a"}))
	state, err := s.client.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.Len(t, state.Holders, 1)
}

// calls is an empty reader that calls a function when it is read.
type calls func()

func (f calls) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestPageThatCannotBeServedIsAFailure(t *testing.T) {
	s := newShell(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	status, _, errs := s.dlock("ui", "--listen="+taken.Addr().String())
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "address already in use")
	empty := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(empty, []byte(" \n"), 0o600))
	status, _, errs = s.dlock("ui", "--listen=127.0.0.1:0", "--token-file="+empty)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "the file is empty")
}

func TestTokenOfThePageComesFromAFileOrTheEnvironment(t *testing.T) {
	s := newShell(t)
	s.env["DLOCK_UI_TOKEN"] = " of the environment\n"
	token, err := s.program().uiToken("")
	require.NoError(t, err)
	assert.Equal(t, "of the environment", token)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of the file\n"), 0o600))
	token, err = s.program().uiToken(file)
	require.NoError(t, err)
	assert.Equal(t, "of the file", token)
}

// What the system refuses to run gives the lock back.
func TestCommandThatDoesNotStart(t *testing.T) {
	s := newShell(t)
	broken := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF"), 0o700))
	status, _, errs := s.dlock("run", "a", broken)
	assert.Equal(t, exitNotRun, status)
	assert.Contains(t, errs, "exec format error")
	state, err := s.client.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.Empty(t, state.Holders)
}

func TestRowsOfLocks(t *testing.T) {
	assert.Equal(t, [][]string{
		{"LOCK", "MODE", "HOLDER", "WAITERS", "LEASE"},
		{"a", "?", "error: no answer"},
		{"b", "free", "-", "2"},
		{"c", "shared", "host/1 and 1 more", "0", "3m20s"},
	}, rows([]lockview.Lock{
		{Name: "a", Error: "no answer"},
		{Name: "b", Queue: make([]lockview.Entry, 2)},
		{Name: "c", Holders: []lockview.Entry{{Mode: "shared", Label: "host/1", Remaining: 200_000}, {Mode: "shared"}}},
	}))
}

func TestShortDurations(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 850: "850ms", 12_999: "12s", 200_000: "3m20s", 7_500_000: "2h05m"} {
		assert.Equal(t, want, short(ms))
	}
}
