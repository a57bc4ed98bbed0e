package real

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/process"
)

// child is a worker as the driver sees it.
type child struct {
	job  job
	proc *process.Process

	stdin  io.WriteCloser
	stderr bytes.Buffer  // read it when the process has ended
	read   chan struct{} // closed when all that it wrote was read
	killed moment        // never, unless the driver killed it
	paused bool
	end    func()
}

// startChild starts a worker, whose records go to add, on a goroutine of their
// own. It ends with the test.
func startChild(t testing.TB, j job, add func(record)) *child {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{job: j, read: make(chan struct{}), killed: never}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stderr = &c.stderr
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe, whose last lines are lost when the process is waited for
	// before they are read.
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = in
	c.proc, err = process.Start(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.read)
		defer out.Close()
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return // a line that was cut short by a kill had not been acknowledged
			}
			var r record
			if err := json.Unmarshal(line, &r); err != nil {
				r = record{Worker: j.Worker, Op: "unreadable", Error: fmt.Sprintf("%q: %v", line, err)}
			}
			add(r)
		}
	}()
	c.end = sync.OnceFunc(func() {
		c.proc.Kill()
		<-c.read
		c.stdin.Close()
	})
	t.Cleanup(c.end)
	return c
}

// kill ends the worker with SIGKILL.
func (c *child) kill() {
	c.killed = now()
	c.end()
}

func (c *child) pause() error {
	c.paused = true
	return c.proc.Pause()
}

func (c *child) resume() error {
	c.paused = false
	return c.proc.Resume()
}

// tell gives the worker an order. One that has ended does not mind.
func (c *child) tell(order string) { io.WriteString(c.stdin, order+"\n") }

// stop has the worker end in order, and says what went wrong if it did not.
func (c *child) stop(patience time.Duration) error {
	if c.killed != never {
		return nil
	}
	c.tell("stop")
	select {
	case <-c.proc.Done:
	case <-time.After(patience):
		c.proc.Cmd.Process.Signal(syscall.SIGQUIT) // it says what it waits for
		select {
		case <-c.proc.Done:
		case <-time.After(2 * time.Second):
		}
		c.end()
		return fmt.Errorf("worker %d does not end %v after it was told to:\n%s", c.job.Worker, patience, c.stderr.String())
	}
	c.end()
	if c.stderr.Len() > 0 || !c.proc.Cmd.ProcessState.Success() {
		return fmt.Errorf("worker %d ended with %v:\n%s", c.job.Worker, c.proc.Cmd.ProcessState, c.stderr.String())
	}
	return nil
}
