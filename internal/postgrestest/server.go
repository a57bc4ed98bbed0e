// Package postgrestest starts PostgreSQL servers for tests: each on a free port
// of 127.0.0.1, with its data in a temporary folder, as a user without rights.
// They end with the test, or with the test program if that is killed.
package postgrestest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/clocktest"
	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/process"
	"github.com/jackc/pgx/v5"
)

// startTimeout is how long a server may take to start, to stop or to carry out a statement.
const startTimeout = time.Minute

// Server is a PostgreSQL server. Its methods may be called concurrently, except
// those that start and stop it.
type Server struct {
	Addr string // "127.0.0.1:port"

	t         testing.TB
	dir       string
	as        account
	env       []string // of the server, besides that of the test
	running   *process.Process
	databases atomic.Int64
}

// account is the user that a server runs as.
type account struct {
	change   bool
	uid, gid uint32
}

// Start starts a server with further lines of configuration, such as
// "max_connections=20". It fails the test if no server is installed.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	s := newServer(t)
	s.start(config)
	return s
}

// StartWithClock is Start for a server, on Linux, whose wall clock the test holds.
func StartWithClock(t testing.TB, config ...string) (*Server, *clocktest.Clock) {
	t.Helper()
	s := newServer(t)
	clock, env := clocktest.New(t, s.dir)
	s.env = env
	s.start(config)
	return s, clock
}

// newServer returns a server that has a folder and was not started.
func newServer(t testing.TB) *Server {
	t.Helper()
	as := unprivileged(t)
	return &Server{t: t, as: as, dir: folder(t, as)}
}

// start makes the data and starts the server.
func (s *Server) start(config []string) {
	s.t.Helper()
	s.run("initdb", "--pgdata="+s.data(), "--username=dlock", "--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale")
	lines := append([]string{
		"listen_addresses='127.0.0.1'", "unix_socket_directories=''",
		"fsync=off", // the machine does not fail during a test
		"max_connections=200", "logging_collector=off", "log_min_messages=fatal",
	}, config...)
	s.configure("postgresql.conf", lines...)
	s.t.Cleanup(func() { s.Stop() })
	s.launchAnywhere("postgresql.conf")
}

// configure adds lines to a file of configuration.
func (s *Server) configure(file string, lines ...string) {
	s.t.Helper()
	conf, err := os.OpenFile(filepath.Join(s.data(), file), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = conf.WriteString(strings.Join(lines, "\n") + "\n")
		conf.Close()
	}
	if err != nil {
		s.t.Fatalf("postgrestest: cannot write the configuration: %v", err)
	}
}

// launchAnywhere starts the server on a free port, which it adds to a file of
// configuration. Another program may take a port that was free, so it tries some.
func (s *Server) launchAnywhere(file string) {
	s.t.Helper()
	var why string
	for range 5 {
		s.Addr = porttest.FreeAddrs(s.t, 1)[0]
		_, port, _ := net.SplitHostPort(s.Addr)
		s.configure(file, "port="+port)
		if why = s.launch(); why == "" {
			return
		}
	}
	s.t.Fatalf("postgrestest: the server ended: %s", why)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Launch starts the server again after Stop or Kill and waits until it answers.
func (s *Server) Launch() {
	s.t.Helper()
	if why := s.launch(); why != "" {
		s.t.Fatalf("postgrestest: the server ended: %s", why)
	}
}

// launch starts the server. If it ended, launch returns what it said. Another server may
// answer on its port, so the one that answers has to have the same data.
func (s *Server) launch() (ended string) {
	s.t.Helper()
	cmd := s.command("postgres", "-D", s.data())
	cmd.Env = append(os.Environ(), s.env...)
	var err error
	if s.running, err = process.Start(cmd); err != nil {
		s.t.Fatalf("postgrestest: cannot start the server: %v", err)
	}
	mine := "DO $$ BEGIN ASSERT current_setting('data_directory') = '" + s.data() + "'; END $$"
	await(s.t, "the server answers", func() bool {
		if s.running.Ended() {
			ended = fmt.Sprintf("%s.", cmd.Stderr)
			return true
		}
		return s.try(mine) == nil
	})
	return ended
}

// Stop ends the server and its connections, in order.
func (s *Server) Stop() {
	if s.running == nil || s.running.Ended() {
		return
	}
	s.Resume()
	s.running.Cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-s.running.Done:
	case <-time.After(startTimeout):
		s.running.Kill()
	}
}

// Crash ends the server at once, without a checkpoint.
func (s *Server) Crash() {
	s.running.Cmd.Process.Signal(syscall.SIGQUIT)
	<-s.running.Done
}

// Pause stops all processes of the server with SIGSTOP, Resume lets them go on.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// signal sends a signal to the server and to the processes that it started. The
// server first: it starts no more of them then.
func (s *Server) signal(sig syscall.Signal) {
	pid := s.running.Cmd.Process.Pid
	syscall.Kill(pid, sig)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			syscall.Kill(n, sig)
		}
	}
}

// URL returns the URL of a new, empty database.
func (s *Server) URL() string {
	s.t.Helper()
	name := "test" + strconv.FormatInt(s.databases.Add(1), 10)
	s.Exec("CREATE DATABASE " + name)
	return s.URLOf(name)
}

// URLOf returns the URL of a database.
func (s *Server) URLOf(database string) string {
	return "postgres://dlock@" + s.Addr + "/" + database + "?sslmode=disable"
}

// Exec runs statements in the database postgres and fails the test on an error.
func (s *Server) Exec(sql string) {
	s.t.Helper()
	if err := s.try(sql); err != nil {
		s.t.Fatalf("postgrestest: %s: %v", sql, err)
	}
}

func (s *Server) try(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URLOf("postgres"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// run runs a program of the server's to its end.
func (s *Server) run(name string, args ...string) {
	s.t.Helper()
	cmd := s.command(name, args...)
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("postgrestest: %s: %v\n%s", name, err, cmd.Stderr)
	}
}

// command is a program of the server's, to run as its user.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(program(s.t, name), args...)
	cmd.Dir, cmd.Stderr = s.dir, new(strings.Builder)
	if s.as.change {
		process.As(cmd, s.as.uid, s.as.gid)
	}
	return cmd
}

// program finds a program in the PATH or where Debian puts it.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(places) == 0 {
		t.Fatalf("postgrestest: no %s in the PATH or in /usr/lib/postgresql: install postgresql 13 or newer, or run `make servers`, which does", name)
	}
	slices.SortFunc(places, func(a, b string) int { return version(b) - version(a) })
	return places[0]
}

// version is the major version in a path of Debian's.
func version(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// unprivileged returns the user for a server, which refuses to run as root.
func unprivileged(t testing.TB) account {
	t.Helper()
	if os.Getuid() != 0 {
		return account{}
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatalf("postgrestest: PostgreSQL does not run as root, and there is no user nobody: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return account{true, uint32(uid), uint32(gid)}
}

// folder makes a temporary folder that belongs to the user.
func folder(t testing.TB, as account) string {
	t.Helper()
	parent := ""
	if as.change && !passable(os.TempDir()) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "dlock-postgres-")
	if err == nil && as.change {
		err = os.Chown(dir, int(as.uid), int(as.gid))
	}
	if err != nil {
		t.Fatalf("postgrestest: cannot make a folder: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// passable says whether every user may pass through a folder. Others' folders,
// such as those of a test, are closed to them.
func passable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// await blocks until ok, and fails the test if that takes too long.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("postgrestest: not true after %v: %s", startTimeout, what)
		}
	}
}

// StartPooler starts pgbouncer in transaction mode in front of the server and
// returns its address.
func (s *Server) StartPooler(t testing.TB, database string) (url string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path = "/usr/sbin/pgbouncer"; !isFile(path) {
			t.Fatal("postgrestest: no pgbouncer in the PATH: install it, or run `make servers`, which does")
		}
	}
	dir, addr := folder(t, s.as), porttest.FreeAddrs(t, 1)[0]
	_, port, _ := net.SplitHostPort(addr)
	host, serverPort, _ := net.SplitHostPort(s.Addr)
	ini := fmt.Sprintf("[databases]\n* = host=%s port=%s user=dlock\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%s\nunix_socket_dir=\n"+
		"auth_type=any\npool_mode=transaction\nmax_client_conn=200\ndefault_pool_size=4\n", host, serverPort, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		t.Fatalf("postgrestest: cannot write the configuration: %v", err)
	}
	cmd := exec.Command(path, file)
	said := new(strings.Builder)
	cmd.Dir, cmd.Stderr = dir, said
	if s.as.change {
		process.As(cmd, s.as.uid, s.as.gid)
	}
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatalf("postgrestest: cannot start pgbouncer: %v", err)
	}
	t.Cleanup(p.Kill)
	await(t, "pgbouncer listens", func() bool {
		if p.Ended() {
			t.Fatalf("postgrestest: pgbouncer ended: %s", said)
		}
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "postgres://dlock@" + addr + "/" + database + "?sslmode=disable"
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
