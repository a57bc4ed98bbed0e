//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
)

// endingSignals go to all processes of the command, as from a terminal: a shell that ends
// by SIGTERM leaves what it runs behind, which would go on without the lock.
var endingSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// otherSignals go to the command alone: most programs end by one that they do not expect.
var otherSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// pipeSignals is what a write to a terminal or pipe that is closed sends. It would end this process, and the
// guard would kill the command.
var pipeSignals = []os.Signal{syscall.SIGPIPE}

// stopSignals are Ctrl-Z, and what a pager sends to its whole group, this process too, when it reads while the command
// has the terminal. Without SIGTTOU: a write to the terminal would send it again and
// again to a process that catches it.
var stopSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN}

var errNoFile = fs.ErrNotExist

// group puts the command into the guard's process group or one of its own, and gives the terminal to the
// group if terminalOf says so.
func (c *child) group(stdin io.Reader) *terminal {
	c.cmd.SysProcAttr = dieWithParent(&syscall.SysProcAttr{Setpgid: true, Pgid: c.leader})
	t := terminalOf(stdin, c.cmd.Stdout)
	if t != nil && t.given {
		c.cmd.SysProcAttr.Foreground = true
		c.cmd.SysProcAttr.Ctty = int(t.file.Fd())
	}
	return t
}

// signalGroup sends a signal to all processes of the command. Some commands leave the guard's group and
// lead one of their own: timeout, setsid, a shell with job control.
func (c *child) signalGroup(s syscall.Signal) {
	syscall.Kill(-c.leader, s)
	if pid := c.cmd.Process.Pid; pid != c.leader {
		syscall.Kill(-pid, s)
	}
}

func (c *child) terminate() {
	c.signalGroup(syscall.SIGTERM)
	c.signalGroup(syscall.SIGCONT) // a stopped process does not act on SIGTERM
}

func (c *child) kill() {
	c.signalGroup(syscall.SIGKILL)
	if err := c.cmd.Process.Signal(syscall.SIGKILL); errors.Is(err, syscall.EPERM) {
		fmt.Fprintln(c.cmd.Stderr, "dlock run: the command runs as another user and cannot be killed: it goes on without the lock")
	}
}

func (c *child) pass(s os.Signal) {
	c.gotInt = c.gotInt || s == os.Interrupt
	for _, ending := range endingSignals {
		if s == ending {
			c.signalGroup(s.(syscall.Signal))
			c.signalGroup(syscall.SIGCONT) // as in terminate
			return
		}
	}
	c.cmd.Process.Signal(s)
}

// writeOn lets this process write to a terminal that the command has: with stty tostop the kernel would
// stop it, and nothing would renew. It is called when the command has started, which would inherit it.
func writeOn() { signal.Ignore(syscall.SIGTTOU) }

// interrupted says whether SIGINT has ended the command, and as far as can be seen, whether the terminal has sent it.
func (c *child) interrupted() interrupt {
	w, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok || !w.Signaled() || w.Signal() != syscall.SIGINT:
		return notInterrupted
	case c.terminal != nil && c.terminal.given && !c.gotInt:
		return interruptedCommand
	}
	return interruptedItself
}

// status is the exit status of the command.
func (c *child) status() int {
	w, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}
