//go:build !linux

package redistest

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
