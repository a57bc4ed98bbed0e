package main

import (
	"fmt"
	"io"
	"sync"
)

// console prints messages, one at a time, until it is closed. The reader of the input may print
// later than that, because a read cannot be interrupted.
type console struct {
	mu     sync.Mutex
	w      io.Writer
	closed bool
}

// printf prints a message on a line of its own.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		fmt.Fprintf(c.w, format+"\n", args...)
	}
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
