package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// console writes messages and a progress line to standard error. On a terminal
// the line stays at the bottom and is redrawn; elsewhere it is printed now and then.
type console struct {
	terminal bool

	mu     sync.Mutex
	w      io.Writer
	drawn  bool // the progress line is on the screen
	closed bool
}

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		c.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return c
}

// printf prints a message on a line of its own.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.erase()
	fmt.Fprintf(c.w, format+"\n", args...)
}

func (c *console) progress(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.erase()
	if !c.terminal {
		line += "\n"
	}
	fmt.Fprint(c.w, line)
	c.drawn = c.terminal
}

func (c *console) erase() {
	if c.drawn {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.drawn = false
	}
}

// follow shows the tally's progress until stop is called.
func (c *console) follow(t *tally) (stop func()) {
	interval := 5 * time.Second
	if c.terminal {
		interval = 100 * time.Millisecond
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.progress(t.progress())
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
		c.mu.Lock()
		defer c.mu.Unlock()
		c.erase()
	}
}

// close drops all that is printed later, by a reader that was left behind.
func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
