//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// terminal is the terminal of this process. While the command has it, the command reads
// from it, and Ctrl-C goes to the command and not to dlock.
type terminal struct {
	file  *os.File
	given bool // the command was given it
	told  bool // that the command needs it, and this process does not have it
	stop  func()
}

// terminalOf returns the terminal. The command is given stdin at its start, if that is a terminal and this process is
// in its foreground. Otherwise, or if a pipe reads stdout, it is given the terminal when it stops because it needs
// that: what reads the pipe may need it too, less for example.
func terminalOf(stdin io.Reader, stdout io.Writer) *terminal {
	file, ok := stdin.(*os.File)
	if ok && foreground(file) == syscall.Getpgrp() && !(isPipe(stdout) && tellsStops) {
		return &terminal{file: file, given: true, stop: func() {}}
	}
	if !tellsStops {
		return nil
	}
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, stop: func() {}}
}

func isPipe(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// foreground returns the process group in the foreground of a terminal, -1 if file is no terminal of this process.
func foreground(file *os.File) int {
	var group int32
	if !ioctl(file, syscall.TIOCGPGRP, &group) {
		return -1
	}
	return int(group)
}

func ioctl(file *os.File, request uintptr, group *int32) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(group)))
	return errno == 0
}

// end is called when the command has ended. It takes the terminal back, for what the shell script around this process
// does next. If that has ended, the shell around it has the terminal, and leads the session.
func (t *terminal) end() {
	if t == nil {
		return
	}
	t.stop()
	if t.given && foreground(t.file) != session() {
		t.takeBack()
	}
}

// takeBack makes this process the terminal's foreground again.
func (t *terminal) takeBack() {
	signal.Ignore(syscall.SIGTTOU) // the kernel stops a background process that asks for this
	t.give(syscall.Getpgrp())
	syscall.Kill(0, syscall.SIGCONT) // a pager may have stopped, when it read
}

// give puts a process group into the foreground.
func (t *terminal) give(group int) {
	g := int32(group)
	ioctl(t.file, syscall.TIOCSPGRP, &g)
}

// pass ends this process by SIGINT, if that has ended the run: bash ends a script only if the process has died of the
// signal, and not for its status. Of what the terminal has sent to the command alone the shell script around this process,
// and others of its group, hear too. pass returns if SIGINT is ignored, and in a container of which this is the first
// process, since no signal ends that.
func (i interrupt) pass() {
	to := os.Getpid()
	if i == notInterrupted || to == 1 || signal.Ignored(syscall.SIGINT) {
		return
	}
	if i == interruptedCommand {
		to = 0
	}
	signal.Reset(syscall.SIGINT)
	syscall.Kill(to, syscall.SIGINT)
	time.Sleep(time.Second) // it ends this process
}
