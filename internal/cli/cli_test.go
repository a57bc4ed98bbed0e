package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// shell is a place to call dlock in, on one memory store.
type shell struct {
	t      *testing.T
	locks  *memory.Store
	client *dlock.Client
	env    map[string]string
	stdin  string
	ctx    context.Context
}

func newShell(t *testing.T) *shell {
	locks := memory.New()
	client, err := dlock.New(locks, &dlock.Options{Label: "host-a/1"})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); locks.Close() })
	return &shell{t: t, locks: locks, client: client, env: map[string]string{"DLOCK_STORE": "test://"}, ctx: t.Context()}
}

// keptOpen is a handle that a command may close without an effect on the others.
type keptOpen struct{ *memory.Store }

func (keptOpen) Close() error { return nil }

func (s *shell) program() *Program {
	return &Program{
		Stdin: strings.NewReader(s.stdin), Context: s.ctx,
		Getenv:  func(name string) string { return s.env[name] },
		Environ: func() []string { return []string{"PATH=/usr/bin:/bin"} },
		Open: func(_ context.Context, url string) (store.Store, error) {
			if url != "test://" {
				return openStore(s.ctx, url)
			}
			return keptOpen{s.locks}, nil
		},
	}
}

func (s *shell) dlock(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, errs locktest.Buffer
	p := s.program()
	p.Stdout, p.Stderr = &out, &errs
	status = p.Run(args)
	return status, out.String(), errs.String()
}

func (s *shell) hold(name string) *dlock.Hold {
	s.t.Helper()
	hold, err := s.client.Mutex(name).LockContext(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { hold.Unlock() })
	return hold
}

func TestWrongArgumentsFail(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{
		{}, {"nonsense"}, {"run"}, {"run", "name"}, {"run", "name", "--"}, {"run", "--nonsense", "n", "true"},
		{"run", "--try", "--wait=1s", "n", "true"}, {"run", "--wait=-1s", "n", "true"}, {"run", "--grace=1m", "n", "true"},
		{"run", "--ttl=1ns", "n", "true"}, {"run", "", "true"}, {"list", "a", "b"}, {"list", "--limit=-1"}, {"inspect"},
		{"inspect", "a", "b"}, {"watch", "--every=1ms"}, {"break"}, {"break", "--json", "a"}, {"check", "x"}, {"ui", "x"},
		{"ui", "--token-file=/nonexistent"}, {"completion"}, {"completion", "cmd"}, {"help", "nonsense"}, {"list", "--store=http://x"},
		{"list", "--store", "redis://a http://secret"}, {"list", "--store", "redis://app:my secret@db"}, {"list", "--store", "password=secret host=db"},
		{"list", "--store="}, {"run", "--store=", "n", "true"}, {"ui", "--token-file="}, {"ui", "--listen="}, {"watch", ""}, {"watch", strings.Repeat("x", dlock.MaxNameLen+1)},
		{"run", "--try", "--wait=0", "n", "true"}, {"run", "--label=\xff", "n", "true"}, {"help", "run", "list"}, {"completion", "bash", "zsh"},
		{"inspect", "a", "--store=http://x"}, {"break", "a", "--store=http://x"}, {"watch", "--store=http://x"}, {"ui", "--store=http://x"},
		{"check", "--store="}, {"run", "--store=http://x", "n", "true"}, {"ui", "--listen=nonsense"},
	} {
		status, _, stderr := s.dlock(args...)
		assert.Equal(t, exitFailed, status, "%q", args)
		assert.NotEmpty(t, stderr, "%q", args)
		assert.NotContains(t, stderr, "secret")
	}
	_, _, stderr := s.dlock("list", "--store=etcd+srv://")
	assert.NotContains(t, stderr, "begins with none of", "the scheme is known, though no domain follows")
	for _, variable := range []string{"DLOCK_OWNER", "DLOCK_HELD"} {
		s.env[variable] = "%zz"
		status, _, stderr := s.dlock("run", "n", "true")
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, stderr, variable)
	}
	s.env = nil
	for _, command := range []string{"list", "check"} {
		status, _, stderr := s.dlock(command)
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, stderr, "DLOCK_STORE")
	}
}

func TestHelpShowsEveryCommandAndFlag(t *testing.T) {
	s := newShell(t)
	_, out, _ := s.dlock("help")
	_, same, _ := s.dlock("-h")
	assert.Equal(t, out, same)
	for _, c := range shown() {
		assert.Contains(t, out, c.short)
		_, ofCommand, _ := s.dlock("help", c.name)
		status, same, _ := s.dlock(c.name, "--help")
		assert.Equal(t, exitOK, status)
		assert.Equal(t, ofCommand, same)
		for _, flag := range flagsOf(&Program{}, c) {
			assert.Contains(t, ofCommand, flag)
		}
	}
	assert.NotContains(t, out, "guard")
}

func TestListAndInspect(t *testing.T) {
	s := newShell(t)
	_, out, _ := s.dlock("inspect", "a")
	assert.Equal(t, "a is free\n", out)
	hold := s.hold("a")
	s.hold("b\x1b[2J")

	status, out, _ := s.dlock("list")
	assert.Equal(t, exitOK, status)
	assert.Regexp(t, `(?m)^LOCK +MODE +HOLDER +WAITERS +LEASE$`, out)
	assert.Regexp(t, `(?m)^a +exclusive +host-a/1 +0 +29s|30s$`, out)
	assert.Contains(t, out, `"b\x1b[2J"`, "a name could write to the terminal")
	_, out, _ = s.dlock("list", "--names", "B")
	assert.Equal(t, "\"b\\x1b[2J\"\n", out)
	_, out, errs := s.dlock("list", "--limit=1", "--names")
	assert.Equal(t, "a\n", out)
	assert.Contains(t, errs, "1 more")

	_, out, _ = s.dlock("inspect", "a", "--json")
	var lock struct {
		Name, Key string
		Holders   []struct{ Token, Label, Mode string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &lock))
	assert.Equal(t, "YQ", lock.Key)
	assert.Equal(t, fmt.Sprint(hold.Token()), lock.Holders[0].Token)
	_, out, _ = s.dlock("inspect", "a")
	assert.Contains(t, out, fmt.Sprint(hold.Token()))
	assert.Contains(t, out, "a: 1 holder, 0 waiters")
	_, out, _ = s.dlock("list", "--json")
	assert.Equal(t, 2, strings.Count(out, "\n"))
}

func TestBreakAsks(t *testing.T) {
	s := newShell(t)
	s.hold("a")
	for _, answer := range []string{"", "n\n", "yesterday\n"} {
		s.stdin = answer
		status, out, _ := s.dlock("break", "a")
		assert.Equal(t, exitNo, status)
		assert.Contains(t, out, "host-a/1", "the question does not show the holder")
		assert.Contains(t, out, "Not broken.")
	}
	state, err := s.client.Inspect(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)

	s.stdin = "y\n"
	status, out, _ := s.dlock("break", "a")
	assert.Equal(t, exitOK, status)
	assert.Contains(t, out, "a: 1 hold broken")
	status, _, _ = s.dlock("break", "a")
	assert.Equal(t, exitNo, status, "nothing was held")

	s.stdin = ""
	s.hold("b")
	status, out, _ = s.dlock("break", "--yes", "--json", "b")
	assert.Equal(t, exitOK, status)
	assert.JSONEq(t, `{"name":"b","key":"Yg","broken":1}`, out)
	status, _, _ = s.dlock("break", "--yes", "b")
	assert.Equal(t, exitNo, status)
}

// changing is a standard input that answers when another owner has got the lock.
type changing struct {
	before func()
	answer *strings.Reader
}

func (c changing) Read(b []byte) (int, error) {
	c.before()
	return c.answer.Read(b)
}

func TestBreakOfAnotherHolderIsRefused(t *testing.T) {
	s := newShell(t)
	hold := s.hold("a")
	var out bytes.Buffer
	p := s.program()
	p.Stdin = changing{func() { hold.Unlock(); s.hold("a") }, strings.NewReader("y\n")}
	p.Stdout, p.Stderr = &out, &out
	assert.Equal(t, exitNo, p.Run([]string{"break", "a"}))
	assert.Contains(t, out.String(), "the holders have changed")
}

// steps is a standard output that does the next step after each write.
type steps struct {
	bytes.Buffer
	then []func()
}

func (s *steps) Write(b []byte) (int, error) {
	n, err := s.Buffer.Write(b)
	if len(s.then) > 0 {
		s.then[0]()
		s.then = s.then[1:]
	}
	return n, err
}

func TestWatchPrintsChanges(t *testing.T) {
	for _, args := range [][]string{{"watch", "a", "--every=100ms", "--json"}, {"watch", "--every=100ms", "--json"}} {
		s := newShell(t)
		hold := s.hold("a")
		ctx, cancel := context.WithCancel(t.Context())
		out := &steps{then: []func(){func() { hold.Unlock() }, cancel}}
		p := s.program()
		p.Stdout, p.Context = out, ctx
		assert.Equal(t, exitOK, p.Run(args))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 2)
		assert.Contains(t, lines[0], `"label":"host-a/1"`)
		assert.NotContains(t, lines[1], `"label":"host-a/1"`)
	}
	s := newShell(t)
	s.hold("a")
	ctx, cancel := context.WithCancel(t.Context())
	out := &steps{then: []func(){cancel}}
	p := s.program()
	p.Stdout, p.Context = out, ctx
	assert.Equal(t, exitOK, p.Run([]string{"watch", "a"}))
	assert.Contains(t, out.String(), "FOR")
}

func TestCheckOfAStoreWithoutOneTakesALock(t *testing.T) {
	s := newShell(t)
	status, out, _ := s.dlock("check")
	assert.Equal(t, exitOK, status)
	assert.Contains(t, out, "nothing found")
	s.locks.Close()
	status, out, _ = s.dlock("check", "--json")
	assert.Equal(t, exitNo, status)
	assert.Contains(t, out, `"topic":"rights"`)
}

func TestCompletionNamesAllCommands(t *testing.T) {
	s := newShell(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, _ := s.dlock("completion", shell)
		assert.Equal(t, exitOK, status)
		for _, c := range shown() {
			assert.Contains(t, out, c.name, shell)
		}
		if shell == "bash" {
			assert.NoError(t, exec.Command("bash", "-n", "-c", out).Run())
		}
	}
}

func TestVersion(t *testing.T) {
	s := newShell(t)
	_, out, _ := s.dlock("--version")
	assert.Regexp(t, `^dlock .+, go1\.`, out)
	_, out, _ = s.dlock("version", "--json")
	assert.Contains(t, out, `"version"`)
}

func TestPageOnLoopbackIsForLoopbackNames(t *testing.T) {
	page := localOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:7070": 200, "127.0.0.1:7070": 200, "[::1]:7070": 200, "evil.example:7070": 403, "10.0.0.1": 403,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}
}

func TestPageServesUntilItsContextEnds(t *testing.T) {
	s := newShell(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &steps{then: []func(){cancel}}
	p := s.program()
	p.Stdout, p.Context = out, ctx
	assert.Equal(t, exitOK, p.Run([]string{"ui", "--listen=127.0.0.1:0"}))
	assert.Contains(t, out.String(), "http://127.0.0.1:")
}
