package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// calls counts what the client has under way at the store, so that Close can
// wait for it and, in the end, cut it off.
type calls struct {
	base   context.Context
	cancel context.CancelCauseFunc

	// Every call of every lock counts here, so it is without a mutex.
	n      atomic.Int64
	closed atomic.Bool
	awaits atomic.Bool // somebody does that n reaches 0
	latest atomic.Pointer[bound]

	mu   sync.Mutex
	idle chan struct{} // closed when n reaches 0; nil when nobody waits
}

func (c *calls) enter() bool {
	c.n.Add(1)
	if c.closed.Load() {
		c.exit()
		return false
	}
	return true
}

func (c *calls) exit() {
	if c.n.Add(-1) > 0 || !c.awaits.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil && c.n.Load() == 0 { // others may have begun since
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
	c.awaits.Store(true) // before n is read: the last exit sees it, or is seen
	if c.n.Load() == 0 {
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
	c.closed.Store(true)
	c.cancel(ErrClosed)
}

// bound is the context of calls of the store. It is not derived from a caller's: a
// call that is cut is a call whose outcome nobody knows. Calls that begin shortly
// after one another share one, for to make it costs as much as all else that an
// uncontended lock does in this process.
type bound struct {
	context.Context
	cancel   context.CancelFunc
	deadline time.Time
	users    atomic.Int32 // of them one is calls.latest; when there is none it is cancelled
}

// bound returns a context that ends after timeout, or up to a 32nd part of that
// earlier. Who gets it leaves it in the end.
func (c *calls) bound(timeout time.Duration) *bound {
	deadline := time.Now().Add(timeout)
	if b := c.latest.Load(); b != nil {
		if early := deadline.Sub(b.deadline); early >= 0 && early < timeout/32 && b.join() {
			return b
		}
	}
	b := &bound{deadline: deadline}
	b.users.Store(2)
	b.Context, b.cancel = context.WithDeadline(c.base, deadline)
	if before := c.latest.Swap(b); before != nil {
		before.leave()
	}
	return b
}

// join counts one more user in, unless the last has left.
func (b *bound) join() bool {
	for n := b.users.Load(); n > 0; n = b.users.Load() {
		if b.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (b *bound) leave() {
	if b.users.Add(-1) == 0 {
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
