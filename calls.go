package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// calls counts what the client has under way at the store, so that Close can
// wait for it and, in the end, cut it off.
type calls struct {
	base   context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when n reaches 0; nil when nobody waits
}

func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

func (c *calls) exit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// spawn runs f on a goroutine, or returns false if the client is closed.
func (c *calls) spawn(f func()) bool {
	if !c.enter() {
		return false
	}
	go func() {
		defer c.exit()
		f()
	}()
	return true
}

// wait returns whether everything under way ended within d.
func (c *calls) wait(d time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}

// close refuses new calls and cuts off those under way.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
}

// context bounds one call of the store. It is not derived from a caller's: a
// call that is cut is a call whose outcome nobody knows.
func (c *calls) context(timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.base, timeout)
}

// verdict hides from the caller that it was our own context that ended a call:
// a context error is to mean that the caller's did.
func (c *calls) verdict(ctx context.Context, err error, timeout time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("the store gave up: %v", err)
	}
	return fmt.Errorf("no reply from the store within %v: %v", timeout, err)
}

// release makes one call to release ref.
func (c *Client) release(ref store.Ref, timeout time.Duration) error {
	if !c.calls.enter() {
		return ErrClosed
	}
	defer c.calls.exit()
	ctx, cancel := c.calls.context(timeout)
	defer cancel()
	return c.calls.verdict(ctx, c.store.Release(ctx, ref), timeout)
}
