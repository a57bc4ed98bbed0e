// Package process runs the servers and children of tests: what it starts dies
// with the test program, and can be stopped in the middle of what it does.
package process

import (
	"os/exec"
	"runtime"
)

// Process is one run of a program.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended and was waited for
}

// Start starts cmd. On Linux the kernel kills it
// when this process is killed, which runs no cleanup.
//
// The goroutine that starts it keeps its thread until the process has ended:
// Pdeathsig means the death of the thread that started it, not of the program,
// and Go ends idle threads when it likes.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = dieWithParent(cmd.SysProcAttr)
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.Done)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // it ends by a signal, which is no news
		}
	}()
	return p, <-started
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Kill sends SIGKILL and blocks until the process is gone.
func (p *Process) Kill() {
	p.Cmd.Process.Kill() // it fails if the process has ended
	<-p.Done
}

// Pause stops the process with SIGSTOP; all its threads have stopped a little
// later, which Runs tells. It does nothing if the process has ended. It fails on
// systems other than Linux.
func (p *Process) Pause() error { return p.signal(true) }

// Resume lets a paused process go on, and does nothing for another.
func (p *Process) Resume() error { return p.signal(false) }
