//go:build !linux

package process

import (
	"errors"
	"syscall"
)

// dieWithParent: only Linux can.
func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *Process) signal(stop bool) error {
	if stop {
		return errors.New("only implemented for Linux")
	}
	return nil
}

// Runs is only implemented for Linux.
func (p *Process) Runs() bool { return false }
