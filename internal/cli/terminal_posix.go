//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// terminal is the terminal of this process while the command has it: the command reads
// from it, and Ctrl-C goes to the command and not to dlock.
type terminal struct {
	file *os.File
	stop func()
}

// terminalOf returns the terminal if stdin is one and this process is in its foreground.
func terminalOf(stdin io.Reader) *terminal {
	file, ok := stdin.(*os.File)
	if !ok {
		return nil
	}
	var group int32
	if !ioctl(file, syscall.TIOCGPGRP, &group) || int(group) != syscall.Getpgrp() {
		return nil
	}
	return &terminal{file: file, stop: func() {}}
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
	signal.Ignore(syscall.SIGTTOU) // the kernel stops a background process that asks for this
	defer signal.Reset(syscall.SIGTTOU)
	group := int32(syscall.Getpgrp())
	ioctl(t.file, syscall.TIOCSPGRP, &group)
}
