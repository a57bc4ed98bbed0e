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
	sent            time.Time
	timeout         time.Duration

	mu     sync.Mutex
	merged context.Context // ends with any of them; made when Done is first asked for
	stop   func()
	over   bool // the call has returned
}

// call returns the context for one call of the store. The call is followed by end.
func call(ctx, base context.Context, now time.Time, timeout time.Duration) *callContext {
	return &callContext{Context: ctx, base: base, sent: now, timeout: timeout}
}

// end counts the call, which has returned err, and frees what its context has taken. It returns err, with
// errors of contexts replaced.
func (c *callContext) end(d *Sender, err error) error {
	if err != nil {
		err = explain(err, c.Err() != nil, c.sent)
	}
	c.mu.Lock()
	stop := c.stop
	c.over = true
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	d.count(err)
	return err
}

// Deadline is the earlier one of the caller's and the call's.
func (c *callContext) Deadline() (time.Time, bool) {
	at := c.sent.Add(c.timeout)
	if d, ok := c.Context.Deadline(); ok && d.Before(at) {
		return d, true
	}
	return at, true
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
	case time.Since(c.sent) >= c.timeout:
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
		merged, cancel := context.WithDeadline(c.base, c.sent.Add(c.timeout))
		detach := context.AfterFunc(c.Context, cancel)
		c.merged, c.stop = merged, func() { detach(); cancel() }
		if c.over {
			c.stop() // a store that looks so late leaves nothing with the caller's context
		}
	}
	return c.merged
}
