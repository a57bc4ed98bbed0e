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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guard is a process beside dlock run that kills all processes of the command where dlock run cannot:
// when that is killed with SIGKILL, and when the lease ends while it is stopped. The guard reads a pipe
// that only dlock run has the other end of. It leads the process group of the command, so
// it knows the group before the command begins. Refused: Pdeathsig alone, which Linux
// alone has, and which leaves behind what a shell script runs at the moment.
type guard struct {
	pid   int
	pipe  io.WriteCloser
	ready chan error
}

// The lines of the guard's pipes. A space and the value follow the first two.
const (
	newCommand = "command" // its pid
	newEnd     = "end"     // the time for which the command may run from now on
	dismissed  = "done"
	isReady    = "ready"
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

// watch tells the guard that the command runs, and its pid.
func (g *guard) watch(pid int) {
	if g != nil {
		fmt.Fprintln(g.pipe, newCommand, pid)
	}
}

// mayRun tells the guard to kill the command at a time, unless mayRun or dismiss comes before. A duration is
// sent, since the monotonic clock of a process means nothing to another one.
func (g *guard) mayRun(until time.Time) {
	if g != nil {
		fmt.Fprintln(g.pipe, newEnd, time.Until(until))
	}
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
			if command, kill := obey(p.Stdin); kill {
				if command != 0 { // it may lead a group of its own
					syscall.Kill(-command, syscall.SIGKILL)
				}
				syscall.Kill(0, syscall.SIGKILL) // the group, and this process with it
			}
			return exitOK, nil
		}
	},
}

// obey reads the pipe until dlock run dismisses the guard. kill says that the command's time was over before, or
// that dlock run has died. command is the pid of the command, 0 if it has not begun.
func obey(pipe io.Reader) (command int, kill bool) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(pipe); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var end <-chan time.Time
	for {
		select {
		case <-end:
			return command, true
		case line, ok := <-lines:
			word, value, _ := strings.Cut(line, " ")
			switch {
			case !ok:
				return command, true
			case word == dismissed:
				return command, false
			case word == newCommand:
				command, _ = strconv.Atoi(value)
			case word == newEnd:
				d, _ := time.ParseDuration(value)
				end = time.After(d)
			}
		}
	}
}
