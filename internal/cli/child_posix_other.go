//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import "syscall"

// dieWithParent: only Linux can. The guard kills the processes here.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

// terminalForLater: only Linux tells that the command has stopped because it needs the terminal.
func terminalForLater() *terminal { return nil }

// keepRunning does nothing: a command that is suspended is continued with kill -CONT.
func (t *terminal) keepRunning(_, _ int) {}
