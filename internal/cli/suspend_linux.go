package cli

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// tellsStops: this process hears of it when a command stops because it needs the terminal.
const tellsStops = true

// session is the leader of this process's session.
func session() int {
	sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	return int(sid)
}

// keepRunning lets the command go on after Ctrl-Z. The shell does not see that the command
// has stopped, since dlock goes on to renew, and would wait for ever. A command that has stopped because it
// needs the terminal gets it, when this process is in the foreground. So does a pager beside this process, which stops
// when it reads, and sends SIGTTIN to this process too, unless the shell has taken the terminal meanwhile.
func (t *terminal) keepRunning(pid, group int, stderr io.Writer) {
	if t == nil {
		return
	}
	news, done := make(chan os.Signal, 1), make(chan struct{})
	news <- syscall.SIGCHLD // the command may have stopped before Notify
	signal.Notify(news, syscall.SIGCHLD)
	reads := make(chan os.Signal, 1) // of a pager
	signal.Notify(reads, syscall.SIGTTIN)
	often := time.NewTicker(time.Second) // nothing tells that fg has put this process into the foreground
	ended := make(chan struct{})
	t.stop = func() { signal.Stop(news); signal.Stop(reads); close(done); <-ended }
	go func() {
		defer close(ended)
		defer often.Stop()
		for {
			select {
			case <-news:
			case <-reads:
				if t.given && stoppedBy(pid) == 0 && foreground(t.file) != session() {
					t.takeBack()
					t.given = false
				}
			case <-often.C:
			case <-done:
				return
			}
			t.look(pid, group, stderr)
		}
	}()
}

// look continues the command if it has stopped.
func (t *terminal) look(pid, group int, stderr io.Writer) {
	by := stoppedBy(pid)
	needs := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if by == 0 || !t.given && !needs {
		return
	}
	if needs {
		its, _ := syscall.Getpgid(pid) // it may have left the group
		switch foreground(t.file) {
		case syscall.Getpgrp(), group:
			t.give(its)
			t.given = true
		case its: // it has got it since
		default:
			if !t.told {
				t.told = true
				fmt.Fprintln(stderr, "dlock run: the command has stopped, because it needs the terminal, which dlock run does not have")
			}
			return
		}
	}
	syscall.Kill(-group, syscall.SIGCONT)
	syscall.Kill(pid, syscall.SIGCONT) // a shell with job control has left the group
}

// siginfo is what waitid tells of a child.
type siginfo struct {
	signal, errno, code int32
	_                   [0]uintptr // the rest is aligned as one
	pid                 int32
	uid                 uint32
	status              int32
	_                   [128]byte // more than it ever has
}

// stoppedBy returns the signal that has stopped a child of this process, 0 if it is not stopped. It leaves the child to
// be waited for, and tells of the stop each time.
func stoppedBy(pid int) syscall.Signal {
	const byPid, noHang, stopped, leave = 1, 1, 2, 0x01000000
	var info siginfo
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), stopped|noHang|leave, 0, 0)
	if errno != 0 || info.signal == 0 {
		return 0
	}
	return syscall.Signal(info.status)
}
