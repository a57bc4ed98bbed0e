package etcdtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dieWithParent has the kernel kill the child when the test binary is killed,
// which runs no cleanup.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func stopOrContinue(p *os.Process, stop bool) error {
	if stop {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}

// runs reports whether a thread of the process runs or could run. Those of a
// process that was sent SIGSTOP stop one after the other.
func runs(p *os.Process) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
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
