//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// guard is a process beside dlock run that kills all processes of the command if
// dlock run is killed with SIGKILL, which it cannot act on itself. The guard reads a pipe
// that only dlock run has the other end of. It leads the process group of the command, so
// it knows the group before the command begins. Refused: Pdeathsig alone, which Linux
// alone has, and which leaves behind what a shell script runs at the moment.
type guard struct {
	pid   int
	pipe  io.WriteCloser
	ready chan error
}

const (
	dismissed = "done"
	isReady   = "ready"
)

// startGuard starts the guard. The result is nil, which is a guard that does nothing, for
// an empty path.
func startGuard(self string) (*guard, error) {
	if self == "" {
		return nil, nil
	}
	cmd := exec.Command(self, guardCommand.name)
	cmd.Dir = "/" // it keeps no file system busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answer, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guard{pid: cmd.Process.Pid, pipe: pipe, ready: make(chan error, 1)}
	go func() {
		line, err := bufio.NewReader(answer).ReadString('\n')
		if err == nil && strings.TrimSpace(line) != isReady {
			err = fmt.Errorf("it says %q", line)
		}
		g.ready <- err
		cmd.Wait()
	}()
	return g, nil
}

// group returns the process group that the guard leads, when the guard ignores the signals
// that are sent to the group. 0 means none.
func (g *guard) group() (int, error) {
	if g == nil {
		return 0, nil
	}
	if err := <-g.ready; err != nil {
		return 0, err
	}
	return g.pid, nil
}

// dismiss ends the guard.
func (g *guard) dismiss() {
	if g != nil {
		fmt.Fprintln(g.pipe, dismissed)
		g.pipe.Close()
	}
}

var guardCommand = command{
	name: "guard", hidden: true, short: "part of dlock run: kills its command if dlock run is killed",
	setup: func(p *Program, f *flag.FlagSet) action {
		return func(context.Context, []string) (int, error) {
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
				syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
			if syscall.Getpgrp() != os.Getpid() {
				return 0, usage("dlock run alone starts it")
			}
			if _, err := fmt.Fprintln(p.Stdout, isReady); err != nil {
				return 0, err
			}
			if !wasDismissed(p.Stdin) {
				syscall.Kill(0, syscall.SIGKILL) // the group, and this process with it
			}
			return exitOK, nil
		}
	},
}

// wasDismissed reads the pipe to its end, which comes when dlock run dismisses the guard or
// when it dies.
func wasDismissed(pipe io.Reader) bool {
	text, _ := io.ReadAll(pipe)
	return strings.TrimSpace(string(text)) == dismissed
}
