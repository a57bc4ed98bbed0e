package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/process"
)

// errAddressInUse says that somebody else has bound the port of a server.
var errAddressInUse = errors.New("the port of redis-server is in use")

const startTimeout = time.Minute

// run starts the server and waits until it answers.
func (s *Server) run() error {
	log, err := os.OpenFile(s.log(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("the log of redis-server is gone: %w", err)
	}
	defer log.Close()
	old, err := log.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command("redis-server", append([]string{s.conf()}, s.args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = log, log // where it says that it dislikes its configuration
	p, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("redis-server does not start: %w", err)
	}
	s.mu.Lock()
	s.proc, s.paused = p, false
	s.mu.Unlock()

	deadline := time.Now().Add(startTimeout)
	for !answers(s.Addr, cmd.Process.Pid) {
		select {
		case <-p.Done:
			s.Kill()
			text, _ := os.ReadFile(s.log())
			text = text[min(int(old.Size()), len(text)):]
			if bytes.Contains(text, []byte("Address already in use")) {
				return errAddressInUse
			}
			return fmt.Errorf("redis-server ended as it started, its log ends with\n%s", tail(text))
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.log())
			return fmt.Errorf("redis-server does not answer PING after %v, its log ends with\n%s", startTimeout, tail(text))
		}
	}
	return nil
}

// answers reports whether the process pid answers at addr. It asks for the pid
// because another server may have the port that this one could not get.
func answers(addr string, pid int) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	reply, _ := io.ReadAll(conn)
	if bytes.HasPrefix(reply, []byte("-NOAUTH")) { // configured so: nothing more to learn
		return true
	}
	return bytes.HasPrefix(reply, []byte("+PONG")) &&
		bytes.Contains(reply, fmt.Appendf(nil, "process_id:%d\r\n", pid))
}

func tail(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Pid is the process id of the server, or of its last run if it was killed.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Cmd.Process.Pid
}

// Running reports whether the server was started and neither killed nor paused
// since. It may be called concurrently.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.paused {
		return false
	}
	return !s.proc.Ended()
}

// Kill ends the server with SIGKILL and blocks until the process is gone. It
// does nothing if the server does not run, and may be called concurrently.
func (s *Server) Kill() {
	s.mu.Lock()
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return
	}
	p.Kill()
}

// Restart kills the server if it runs, starts it with the same port, directory
// and configuration file, and blocks until it answers PING. Without persistence
// in its configuration the server has lost all data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	deadline := time.Now().Add(startTimeout)
	err := s.run()
	// Nobody is told the port, but an outgoing connection may have got it.
	for errors.Is(err, errAddressInUse) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
		err = s.run()
	}
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	if admin != nil {
		s.await("the admin client reconnects", func() bool { return s.Do("PING").Error() == nil })
	}
}

// Pause stops the server with SIGSTOP: connections stay open, nothing is
// answered. It returns when the signal is sent and may be called concurrently.
func (s *Server) Pause() { s.signal(true) }

// Resume lets a paused server go on. It does nothing for one that is not
// paused, and may be called concurrently.
func (s *Server) Resume() { s.signal(false) }

func (s *Server) signal(pause bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	change := s.proc.Resume
	if pause {
		change = s.proc.Pause
	}
	if err := change(); err != nil {
		s.t.Errorf("redistest: cannot pause or resume redis-server: %v", err)
		return
	}
	s.paused = pause
}
