package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadlines makes the contexts that bound calls of the store. Calls that begin
// shortly after one another share one context, because a timer costs as much as
// all else that an uncontended lock does in this process.
type deadlines struct {
	base   context.Context
	cancel context.CancelCauseFunc
	latest atomic.Pointer[sharedDeadline]
}

// sharedDeadline is a context that several calls use.
type sharedDeadline struct {
	context.Context
	stop  context.CancelFunc
	at    time.Time
	users atomic.Int32 // calls, and one for deadlines.latest; stopped when 0
}

func (s *deadlines) init() {
	s.base, s.cancel = context.WithCancelCause(context.Background())
}

// within returns a context that ends timeout after now, or up to a 32nd part of that
// earlier. The caller ends its use with leave.
func (s *deadlines) within(now time.Time, timeout time.Duration) *sharedDeadline {
	at := now.Add(timeout)
	// Only a context that ends earlier is shared: a call is never given more than its time.
	if d := s.latest.Load(); d != nil {
		if early := at.Sub(d.at); early >= 0 && early < timeout/32 && d.join() {
			return d
		}
	}
	d := &sharedDeadline{at: at}
	d.users.Store(2)
	d.Context, d.stop = context.WithDeadline(s.base, at)
	if before := s.latest.Swap(d); before != nil {
		before.leave()
	}
	return d
}

// boundedContext is the context of one call of the store, which ends its use with leave.
type boundedContext interface {
	context.Context
	leave()
}

// bound returns a context with the values of ctx, which ends with ctx or as within says.
func (s *deadlines) bound(ctx context.Context, now time.Time, timeout time.Duration) boundedContext {
	shared := s.within(now, timeout)
	if ctx == context.Background() {
		return shared
	}
	return &callContext{caller: ctx, shared: shared}
}

// join counts one more user, unless the last has left.
func (d *sharedDeadline) join() bool {
	for n := d.users.Load(); n > 0; n = d.users.Load() {
		if d.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (d *sharedDeadline) leave() {
	if d.users.Add(-1) == 0 {
		d.stop()
	}
}

// callContext is the context of an Acquire on the caller's goroutine: it has the
// caller's values and ends with the caller's context, the timeout or Close. A store
// that answers without waiting for Done pays for none of that.
type callContext struct {
	caller context.Context
	shared *sharedDeadline

	mu     sync.Mutex
	merged context.Context // ends with either; made when Done is first asked for
	stop   func()
	over   bool // the call has returned
}

func (c *callContext) Deadline() (time.Time, bool) {
	if d, ok := c.caller.Deadline(); ok && d.Before(c.shared.at) {
		return d, true
	}
	return c.shared.at, true
}

func (c *callContext) Err() error {
	if err := c.caller.Err(); err != nil {
		return err
	}
	if err := c.shared.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged != nil {
		return c.merged.Err() // it has ended with the call
	}
	return nil
}

func (c *callContext) Value(key any) any { return c.caller.Value(key) }

func (c *callContext) Done() <-chan struct{} { return c.either().Done() }

// AfterFunc lets the context package derive contexts without a goroutine.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.either(), f)
}

// either returns a context that ends with the caller's and with the shared one.
func (c *callContext) either() context.Context {
	if c.caller.Done() == nil {
		return c.shared.Context
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		merged, cancel := context.WithCancel(c.shared.Context)
		c.merged = merged
		if c.over {
			cancel() // a store that looks so late leaves nothing with the caller's context
			return merged
		}
		detach := context.AfterFunc(c.caller, cancel)
		c.stop = func() { detach(); cancel() }
	}
	return c.merged
}

// leave frees what the context has taken. The call has returned.
func (c *callContext) leave() {
	c.mu.Lock()
	stop := c.stop
	c.stop, c.over = nil, true
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.shared.leave()
}
