package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	if attr == nil {
		attr = new(syscall.SysProcAttr)
	}
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}

// As makes cmd run as another user; only root may.
func As(cmd *exec.Cmd, uid, gid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

func (p *Process) signal(stop bool) error {
	s := syscall.SIGCONT
	if stop {
		s = syscall.SIGSTOP
	}
	if err := p.Cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Runs reports whether a thread of the process runs or could run. Those of a
// process that was paused stop one after the other.
func (p *Process) Runs() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(state) > 0 && !bytes.ContainsRune([]byte("TtZXx"), rune(state[0])) {
			return true
		}
	}
	return false
}
