package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// child is the command of dlock run, and the processes that it starts.
type child struct {
	cmd      *exec.Cmd
	done     chan struct{} // closed when the command has ended
	guard    *guard
	leader   int       // pid of the leader of the command's process group; 0: the command
	terminal *terminal // nil: there is none to give
	gotInt   bool      // this process has got SIGINT, and passed it on
}

// lookUp finds the program of a command. status is for an error.
func lookUp(name string) (path string, status int, err error) {
	path, err = exec.LookPath(name)
	switch {
	case err == nil:
		return path, 0, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, errNoFile):
		return "", exitNotFound, fmt.Errorf("command not found: %s", name)
	}
	return "", exitNotRun, fmt.Errorf("the command cannot be executed: %w", err)
}

// startChild starts a command in a process group of its own, which the guard leads if there
// is one.
//
// The goroutine that starts it keeps its thread until the command has ended: on Linux
// the kernel kills the command when that thread ends, and Go ends idle threads.
func startChild(p *Program, g *guard, path string, argv, env []string) (*child, error) {
	c := &child{
		cmd:   &exec.Cmd{Path: path, Args: argv, Env: env, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr},
		done:  make(chan struct{}),
		guard: g,
	}
	var err error
	if c.leader, err = g.group(); err != nil {
		fmt.Fprintf(p.Stderr, "dlock run: no guard, so processes of the command may outlive a kill -9 of this one: %v\n", err)
	}
	c.terminal = c.group(p.Stdin)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.cmd.Wait() // status tells how it ended
		}
	}()
	if err := <-started; err != nil {
		c.terminal.end()
		return nil, fmt.Errorf("the command cannot be executed: %w", err)
	}
	if c.leader == 0 {
		c.leader = c.cmd.Process.Pid
	}
	c.guard.watch(c.cmd.Process.Pid)
	writeOn()
	c.terminal.keepRunning(c.cmd.Process.Pid, c.leader, p.Stderr)
	return c, nil
}

func (c *child) ended() <-chan struct{} { return c.done }

func (c *child) mayRun(until time.Time) { c.guard.mayRun(until) }

// end is called after the command has ended. all says to kill the processes that it has
// started and left behind.
func (c *child) end(all bool) {
	if all {
		c.kill()
	}
	c.guard.dismiss() // what is left behind without a loss is meant to go on
	c.terminal.end()
}
