package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// work counts the calls and goroutines of a handle, so that Close can wait for them and, in the end, cut off what they
// wait for.
type work struct {
	base context.Context
	cut  context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// begin counts a call in, until end. The error says why it cannot start.
func (w *work) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.all.Add(1)
	return nil
}

func (w *work) end() { w.all.Done() }

// also runs f on a goroutine, as a part of something that is counted already.
func (w *work) also(f func()) { w.all.Go(f) }

// spawn is also for what nothing counts yet. After Close it does nothing.
func (w *work) spawn(f func()) {
	if w.begin(w.base) == nil {
		defer w.end()
		w.also(f)
	}
}

// close refuses new calls, and cuts off what has not ended within d. It returns false if it was called before.
func (w *work) close(d time.Duration) bool {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return false
	}
	timer := time.AfterFunc(d, w.cut)
	defer timer.Stop()
	w.all.Wait()
	w.cut()
	return true
}

// detach returns a context with the values of ctx that ends after the timeout, or when the handle is closed, but not
// with ctx: a caller that leaves does not stop a request whose outcome would be unknown then.
func (w *work) detach(ctx context.Context, timeout time.Duration) (detached context.Context, end func()) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(w.base, cancel)
	return detached, func() { stop(); cancel() }
}

// sleep waits, and reports whether ctx and the handle are still open.
func (w *work) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-w.base.Done():
	}
	return false
}
