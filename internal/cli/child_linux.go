package cli

import "syscall"

// dieWithParent has the kernel kill the command when this process dies, by kill -9 too.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}
