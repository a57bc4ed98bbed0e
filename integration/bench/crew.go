package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dlock-go/dlock/internal/process"
)

// crew are the worker processes of one measurement.
type crew struct {
	workers []*worker
	undo    []func() bool
}

type worker struct {
	proc    *process.Process
	told    io.WriteCloser
	out     io.ReadCloser
	said    *json.Decoder
	stderr  bytes.Buffer
	waiting bool // for it to be ready
}

// start starts the processes of a job and waits until they are ready. When ctx
// ends they are killed. In turn: each when the one before it is ready.
func start(ctx context.Context, j job, inTurn bool) (c *crew, err error) {
	c = &crew{}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	for i := range j.Processes {
		j.Process = i
		if i > 0 {
			j.Profiles = "" // one like the others
		}
		w, err := startWorker(j)
		if err != nil {
			return nil, err
		}
		c.workers = append(c.workers, w)
		c.undo = append(c.undo, context.AfterFunc(ctx, w.proc.Kill))
		if w.waiting = true; inTurn {
			if err := c.ready(); err != nil {
				return nil, err
			}
		}
	}
	return c, c.ready()
}

func startWorker(j job) (*worker, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stderr = &w.stderr
	if w.told, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe, which the end of the process closes, maybe before all of it
	// was read.
	r, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, w.out = out, r
	w.said = json.NewDecoder(r)
	if w.proc, err = process.Start(cmd); err != nil {
		r.Close()
		return nil, err
	}
	return w, nil
}

// ready waits until all workers are.
func (c *crew) ready() error {
	for _, w := range c.workers {
		if !w.waiting {
			continue
		}
		if _, err := w.hear(); err != nil {
			return err
		}
		w.waiting = false
	}
	return nil
}

// all tells all workers to go on, and hears a message of each, which it adds up.
func (c *crew) all() (r result, err error) {
	for _, w := range c.workers {
		if _, err := io.WriteString(w.told, "\n"); err != nil {
			return r, w.failed(err)
		}
	}
	for _, w := range c.workers {
		m, err := w.hear()
		if err != nil {
			return r, err
		}
		r.add(m.Result)
	}
	return r, nil
}

// silent is how long a worker may say nothing: it may have to take many locks.
const silent = 3 * time.Minute

func (w *worker) hear() (message, error) {
	late := time.AfterFunc(silent, w.proc.Kill)
	defer late.Stop()
	m, err := next(w.said)
	if err != nil {
		return m, w.failed(err)
	}
	return m, nil
}

// failed adds what the worker has said of it, once it is gone.
func (w *worker) failed(err error) error {
	w.proc.Kill()
	if w.stderr.Len() > 0 {
		return fmt.Errorf("%w: %s", err, w.stderr.String())
	}
	return err
}

// end kills the workers.
func (c *crew) end() {
	for _, undo := range c.undo {
		undo()
	}
	for _, w := range c.workers {
		w.proc.Kill()
		w.told.Close()
		w.out.Close()
	}
}
