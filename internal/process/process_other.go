//go:build !linux

package process

import (
	"errors"
	"os/exec"
	"syscall"
)

// dieWithParent: only Linux can.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

// As does nothing: it is for a root user, which other systems' tests do not run as.
func As(cmd *exec.Cmd, uid, gid uint32) {}

func (p *Process) signal(stop bool) error {
	if stop {
		return errors.New("only implemented for Linux")
	}
	return nil
}

// Runs is only implemented for Linux.
func (p *Process) Runs() bool { return false }
