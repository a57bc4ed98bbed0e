package cli

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// terminalForLater returns the terminal of this process, if it has one, for a command that may need it later: one that
// asks for a password, for example.
func terminalForLater() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, stop: func() {}}
}

// keepRunning lets the command go on after Ctrl-Z. The shell does not see that the command
// has stopped, since dlock goes on to renew, and would wait for ever. A command that has stopped because it
// needs the terminal gets it, when this process is in the foreground.
func (t *terminal) keepRunning(pid, group int) {
	if t == nil {
		return
	}
	news, done := make(chan os.Signal, 1), make(chan struct{})
	news <- syscall.SIGCHLD                               // the command may have stopped before Notify
	signal.Notify(news, syscall.SIGCHLD, syscall.SIGCONT) // SIGCONT: fg puts this process into the foreground
	ended := make(chan struct{})
	t.stop = func() { signal.Stop(news); close(done); <-ended }
	go func() {
		defer close(ended)
		for {
			select {
			case <-news:
				t.look(pid, group)
			case <-done:
				return
			}
		}
	}()
}

// look continues the command if it has stopped.
func (t *terminal) look(pid, group int) {
	by := stoppedBy(pid)
	needs := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch {
	case by == 0:
	case t.given:
		syscall.Kill(-group, syscall.SIGCONT)
	case needs && foreground(t.file):
		t.give(group)
		t.given = true
		syscall.Kill(-group, syscall.SIGCONT)
	}
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
