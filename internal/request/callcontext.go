package request

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of one call of the store. It has the caller's values, and ends with the
// caller's context, at its deadline, or with base. A store that answers without waiting for Done pays
// for no timer, and registers nothing with the caller's context.
type callContext struct {
	context.Context                 // the caller's
	base            context.Context // ends when the client is closed
	at              time.Time

	mu     sync.Mutex
	merged context.Context // ends with any of them; made when Done is first asked for
	stop   func()
	over   bool // the call has returned
}

// Deadline is the earlier one of the caller's and the call's.
func (c *callContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.at) {
		return d, true
	}
	return c.at, true
}

// Err does without the timer, if the store has not asked for Done.
func (c *callContext) Err() error {
	c.mu.Lock()
	merged := c.merged
	c.mu.Unlock()
	switch {
	case merged != nil:
		return merged.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.base.Err() != nil:
		return c.base.Err()
	case !time.Now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Done makes the timer.
func (c *callContext) Done() <-chan struct{} { return c.merge().Done() }

// AfterFunc lets the context package derive contexts without a goroutine.
func (c *callContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.merge(), f) }

// merge returns a context that ends with the caller's, at the deadline or with base.
func (c *callContext) merge() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		merged, cancel := context.WithDeadline(c.base, c.at)
		detach := context.AfterFunc(c.Context, cancel)
		c.merged, c.stop = merged, func() { detach(); cancel() }
		if c.over {
			c.stop() // a store that looks so late leaves nothing with the caller's context
		}
	}
	return c.merged
}

// leave frees what the context has taken. The call has returned.
func (c *callContext) leave() {
	c.mu.Lock()
	stop := c.stop
	c.over = true
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}
