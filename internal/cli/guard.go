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
)

// guard is a process beside dlock run that kills all processes of the command if
// dlock run is killed with SIGKILL, which it cannot act on itself. The guard reads a pipe
// that only dlock run has the other end of. Refused: Pdeathsig alone, which Linux alone has,
// and which leaves behind what a shell script runs at the moment.
type guard struct {
	pipe io.WriteCloser
}

const dismissed = "done"

// startGuard starts the guard. The result is nil, which is a guard that does nothing, for
// an empty path.
func startGuard(self string) (*guard, error) {
	if self == "" {
		return nil, nil
	}
	cmd := exec.Command(self, guardCommand.name)
	cmd.Dir = "/"                                         // it keeps no file system busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the group of dlock run does not end it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		pipe.Close()
		return nil, err
	}
	go cmd.Wait()
	return &guard{pipe}, nil
}

// watch tells the guard which process group to kill.
func (g *guard) watch(group int) {
	if g != nil {
		fmt.Fprintln(g.pipe, group)
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
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
			watchPipe(p.Stdin, func(group int) { syscall.Kill(-group, syscall.SIGKILL) })
			return exitOK, nil
		}
	},
}

// watchPipe reads the pipe to its end and calls kill with the group, if there is one and
// the guard was not dismissed.
func watchPipe(pipe io.Reader, kill func(group int)) {
	lines := bufio.NewScanner(pipe)
	group := 0
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == dismissed {
			return
		}
		group, _ = strconv.Atoi(text)
	}
	if group > 1 {
		kill(group)
	}
}
