package core

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
)

// await blocks until the state of the waiter has changed.
func (a *Call) await(ctx context.Context) error {
	if err := a.count(&a.Client.waiting); err != nil {
		return err
	}
	sh := a.name.shard
	sh.mu.Lock()
	state := a.waiter.State
	if state != localqueue.Waiting && state != localqueue.Following {
		sh.mu.Unlock()
		return nil
	}
	if a.ready == nil {
		// Made under the mutex under which the state was looked at, so no change is
		// missed. One element is enough: the call reads the state, not the channel.
		a.ready = make(chan struct{}, 1)
	}
	ready := a.ready
	sh.mu.Unlock()
	var slow <-chan time.Time
	if d := a.Client.config.SlowWait; d > 0 && !a.warned {
		slow = time.After(d - time.Since(a.since))
	}
	for {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return a.over(ctx)
		case <-a.Client.closing:
			return request.ErrClosed
		case <-slow:
			a.warnSlow()
		}
	}
}

// wake has the call look at its state. It says nothing of what has changed: a second
// change before the call looks needs no second wake. The shard is locked.
func (a *Call) wake() {
	if a.ready == nil {
		return // it has not begun to wait, and looks before it does
	}
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// over is why the call cannot go on: its context has ended, or the client closes. It
// runs a user's code, so no mutex is held.
func (a *Call) over(ctx context.Context) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if a.Client.isClosing.Load() {
		return request.ErrClosed
	}
	return nil
}

// gauge counts calls that are under way, and says how many of them are allowed.
type gauge struct {
	n    atomic.Int64
	most int64
}

// leastAsking is how many calls may wait for the answer to their first request,
// however small MaxWaiters is: they do not wait for a lock yet.
const leastAsking = 1000

// count counts this call among those that wait for the first answer of the store, or
// for the lock, if there may be one more. MaxWaiters bounds both, each for itself: so
// a free name can be locked while others wait, and an outage does not collect calls
// without end. A Try ends soon by itself and is not counted.
func (a *Call) count(g *gauge) error {
	if a.Try || a.counted == g || a.counted == &a.Client.waiting {
		return nil
	}
	a.uncount()
	if g.n.Add(1) > g.most {
		g.n.Add(-1)
		return ErrTooManyWaiters
	}
	a.counted = g // leave and deliver count it out
	return nil
}

func (a *Call) uncount() {
	if a.counted == nil {
		return
	}
	if c := a.Client; a.counted == &c.waiting {
		c.waits.Add(1)
		c.waitTime.Add(int64(time.Since(a.since)))
	}
	a.counted.n.Add(-1)
	a.counted = nil
}
