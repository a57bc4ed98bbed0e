//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"io"
	"syscall"
)

// dieWithParent: only Linux can. The guard kills the processes here.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

// tellsStops: only Linux tells that the command has stopped because it needs the terminal.
const tellsStops = false

// session is the leader of this process's session.
func session() int {
	sid, _ := syscall.Getsid(0)
	return sid
}

// keepRunning does nothing: a command that is suspended is continued with kill -CONT.
func (t *terminal) keepRunning(_, _ int, _ io.Writer) {}
