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
	latest *bound        // the last one made
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

// bound is the context of calls of the store. It is not derived from a caller's: a
// call that is cut is a call whose outcome nobody knows. Calls that begin shortly
// after one another share one, for to make it costs as much as all else that an
// uncontended lock does in this process.
type bound struct {
	context.Context
	calls    *calls
	cancel   context.CancelFunc
	deadline time.Time
	users    int // of them one is calls.latest; guarded by calls.mu
}

// bound returns a context that ends after timeout, or up to a 32nd part of that
// earlier. Who gets it leaves it in the end.
func (c *calls) bound(timeout time.Duration) *bound {
	deadline := time.Now().Add(timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.latest; b != nil {
		if early := deadline.Sub(b.deadline); early >= 0 && early < timeout/32 {
			b.users++
			return b
		}
		b.drop()
	}
	b := &bound{calls: c, deadline: deadline, users: 2}
	b.Context, b.cancel = context.WithDeadline(c.base, deadline)
	c.latest = b
	return b
}

func (b *bound) leave() {
	b.calls.mu.Lock()
	defer b.calls.mu.Unlock()
	b.drop()
}

// drop is leave with the mutex locked.
func (b *bound) drop() {
	if b.users--; b.users == 0 {
		b.cancel()
	}
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
	ctx := c.calls.bound(timeout)
	defer ctx.leave()
	return c.calls.verdict(ctx, c.store.Release(ctx, ref), timeout)
}
