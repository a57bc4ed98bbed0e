//go:build !linux

package etcdtest

import (
	"errors"
	"os"
	"syscall"
)

// dieWithParent: only Linux can.
func dieWithParent() *syscall.SysProcAttr { return nil }

func stopOrContinue(_ *os.Process, stop bool) error {
	if stop {
		return errors.New("only implemented for Linux")
	}
	return nil
}

func runs(*os.Process) bool { return false }
