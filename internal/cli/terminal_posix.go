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
	if ok && foreground(file) && !(isPipe(stdout) && tellsStops()) {
		return &terminal{file: file, given: true, stop: func() {}}
	}
	if !tellsStops() {
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

// foreground reports whether file is a terminal, and this process is in its foreground.
func foreground(file *os.File) bool {
	var group int32
	return ioctl(file, syscall.TIOCGPGRP, &group) && int(group) == syscall.Getpgrp()
}

func ioctl(file *os.File, request uintptr, group *int32) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(group)))
	return errno == 0
}

// takeBack makes this process the terminal's foreground again, for what the shell script
// around it does next.
func (t *terminal) takeBack() {
	if t == nil {
		return
	}
	t.stop()
	if t.given {
		signal.Ignore(syscall.SIGTTOU) // the kernel stops a background process that asks for this
		defer signal.Reset(syscall.SIGTTOU)
		t.give(syscall.Getpgrp())
		syscall.Kill(0, syscall.SIGCONT) // a pager may have stopped, when it read
	}
}

// give puts a process group into the foreground.
func (t *terminal) give(group int) {
	g := int32(group)
	ioctl(t.file, syscall.TIOCSPGRP, &g)
}

// endGroup ends this process and those around it, such as the shell script that has started it, by Ctrl-C: the terminal
// has sent that to the command alone. It returns if SIGINT is ignored.
func endGroup() {
	if signal.Ignored(syscall.SIGINT) {
		return
	}
	signal.Reset(syscall.SIGINT)
	syscall.Kill(0, syscall.SIGINT)
	time.Sleep(time.Second) // it ends this process: bash ends a script only if the process has died of the signal
}
