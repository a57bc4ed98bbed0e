package request

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
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

// counts are the calls of the store so far. They are spread over cache lines by the id that a call is
// about, so that calls of many goroutines do not contend.
type counts struct {
	lines  [16]countLine
	pushed atomic.Int64 // grants that came as an event
}

// countLine has the counts of some ids.
type countLine struct {
	calls, failed atomic.Int64
	_             [112]byte // two lines of 64 bytes: some processors fetch pairs
}

// count counts a call about an id that ended with err.
func (k *counts) count(id string, err error) {
	line := &k.lines[0]
	if id != "" {
		line = &k.lines[id[0]&15]
	}
	line.calls.Add(1)
	if isFailure(err) {
		line.failed.Add(1)
	}
}

// isFailure reports that the store gave no usable answer: an outcome that is unknown, or a refusal.
func isFailure(err error) bool {
	return err != nil && (!Certain(err) || errors.Is(err, store.ErrRefused))
}

// Calls returns how many calls of the store have ended, how many of them had no usable answer, and how
// many grants came as an event.
func (d *Sender) Calls() (calls, failed, pushed int64) {
	for i := range d.counts.lines {
		calls += d.counts.lines[i].calls.Load()
		failed += d.counts.lines[i].failed.Load()
	}
	return calls, failed, d.counts.pushed.Load()
}
