package request

import (
	"sync/atomic"
	"time"
)

// Counter counts what is under way and can be waited for. Its zero value is ready.
type Counter struct {
	n    atomic.Int64
	idle atomic.Pointer[chan struct{}] // a waiter's; told when n reaches 0
}

// Add counts one more.
func (c *Counter) Add() { c.n.Add(1) }

// Done counts one less.
func (c *Counter) Done() {
	if c.n.Add(-1) > 0 {
		return
	}
	if idle := c.idle.Load(); idle != nil {
		select {
		case *idle <- struct{}{}:
		default:
		}
	}
}

// Load returns the count.
func (c *Counter) Load() int { return int(c.n.Load()) }

// Wait returns when the count is 0, or false at deadline. One goroutine may wait.
func (c *Counter) Wait(deadline time.Time) bool {
	idle := make(chan struct{}, 1)
	c.idle.Store(&idle) // before n is read: the last Done sees it, or is seen
	for c.n.Load() > 0 {
		if sleep(time.Until(deadline), idle, nil) {
			return c.n.Load() == 0
		}
	}
	return true
}
