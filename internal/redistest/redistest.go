// Package redistest starts real Redis servers for tests: one alone, a cluster,
// a master with replicas and sentinels, one whose wall clock jumps; and a proxy
// that loses, repeats and holds back what goes through it.
//
// Whatever it starts ends with the test that started it. What fails fails the
// test with one sentence, so its functions and methods are for the goroutine of
// the test unless they say otherwise.
package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/process"
)

// Server is a redis-server process of this test.
type Server struct {
	Addr string // "127.0.0.1:port", the same for all its life

	t    testing.TB
	dir  string
	port string
	args []string // of redis-server, after the config file
	env  []string // on top of the environment of the test

	mu     sync.Mutex
	proc   *process.Process // nil: not running
	paused bool
	admin  rueidis.Client // nil: not opened yet
}

// Start starts a redis-server on a free port of 127.0.0.1 that keeps nothing on
// disk, with extra lines of redis.conf ("maxmemory 1mb"), which override its
// own. It blocks until the server answers PING, fails the test if that takes
// longer than a minute, and kills the server when the test ends.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	return launch(t, kind{lines: func(port, _ string) []string { return append(standalone(port), config...) }})
}

// StartTLS starts a server as Start does that also listens for TLS, at tlsAddr. The
// files of its certificate are in config.
func StartTLS(t testing.TB, config ...string) (s *Server, tlsAddr string) {
	t.Helper()
	s = launch(t, kind{lines: func(port, other string) []string {
		tlsAddr = fmt.Sprint("127.0.0.1:", other)
		return append(append(standalone(port), fmt.Sprint("tls-port ", other)), config...)
	}})
	return s, tlsAddr
}

// kind is what tells the servers of this package apart.
type kind struct {
	lines func(port, other string) []string // redis.conf
	args  []string
	env   []string
}

func standalone(port string) []string {
	return []string{
		fmt.Sprint("port ", port),
		"bind 127.0.0.1",
		"protected-mode yes",
		"enable-debug-command yes",
		"daemonize no",
		"loglevel notice",
		`save ""`,
		"appendonly no",
		// A replica gets its data over the socket at once, not after 5 s.
		"repl-diskless-sync yes",
		"repl-diskless-sync-delay 0",
	}
}

// launch starts a server of the kind, on another port if somebody was quicker
// to bind the free one.
func launch(t testing.TB, k kind) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redistest: redis-server is not installed: run `apt-get install redis-server redis-sentinel`, or `make test`, which does.")
	}
	s := &Server{t: t, dir: t.TempDir(), args: k.args, env: k.env}
	t.Cleanup(s.end)
	for attempt := 1; ; attempt++ {
		addrs := porttest.FreeAddrs(t, 2)
		s.Addr, s.port = addrs[0], porttest.Port(addrs[0])
		s.configure(k.lines(s.port, porttest.Port(addrs[1])))
		err := s.run()
		if err == nil {
			return s
		}
		if attempt == 5 || !errors.Is(err, errAddressInUse) {
			t.Fatalf("redistest: %v", err)
		}
	}
}

func (s *Server) configure(lines []string) {
	s.t.Helper()
	lines = append([]string{fmt.Sprintf("dir %q", s.dir), fmt.Sprintf("logfile %q", s.log())}, lines...)
	text := strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(s.conf(), []byte(text), 0o600); err != nil {
		s.t.Fatalf("redistest: cannot configure redis-server: %v", err)
	}
	if err := os.WriteFile(s.log(), nil, 0o600); err != nil {
		s.t.Fatalf("redistest: cannot make the log of redis-server: %v", err)
	}
}

func (s *Server) conf() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) log() string  { return filepath.Join(s.dir, "redis.log") }

// Log is the path of what the server has logged, which goes with the test.
func (s *Server) Log() string { return s.log() }

// URL is "redis://127.0.0.1:port".
func (s *Server) URL() string { return "redis://" + s.Addr }

// end is the end of the test.
func (s *Server) end() {
	s.mu.Lock()
	admin := s.admin
	s.admin = nil
	s.mu.Unlock()
	// First the process: the close of a client waits for a paused server.
	s.Kill()
	if admin != nil {
		admin.Close()
	}
}
