package core

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// deliver ends a call that was granted. It looks at the clock last, so that a pause
// on the way ends in an error, and not in a hold that is over. Only a hold that MaxHold
// has ended is handed out all the same, as lost: the next grant would be over too, and
// Lock would try for ever. From then on the loss of the hold is told.
func (a *Call) deliver() error {
	a.uncount()
	h, sh := a.Handle, a.name.shard
	if h.delivered {
		return nil // a re-entry, which has read the clock
	}
	var fx effects
	sh.mu.Lock()
	if p := h.turn.place; h.err == nil && !p.lease.Valid() {
		p.endAll(&fx, p.cause())
	}
	delivered := h.err == nil || h.err == ErrMaxHold
	h.delivered = delivered
	if h.err == ErrMaxHold { // declared before the call had the hold
		h.turn.owner.lose()
		fx.tell(h)
	}
	sh.mu.Unlock()
	fx.run(a.Client)
	if delivered {
		return nil
	}
	if err := h.Unlock(); errors.Is(err, store.ErrClosed) {
		return request.ErrClosed
	}
	return request.ErrExpired
}

// quit ends a call whose store, Observer or context has panicked or ended the goroutine.
// Without it each later call of the name in this process would wait for this one.
func (a *Call) quit() {
	if a.name == nil {
		return
	}
	if a.sending != nil {
		a.sending.request.Abandon()
	}
	if a.leave(context.Background(), errQuit) == nil {
		_ = a.Handle.Unlock() // nobody has it
	}
}

var errQuit = errors.New("the call did not return")

// leave ends a call that was not granted, or returns nil if it was in that moment.
func (a *Call) leave(ctx context.Context, err error) error {
	n, cut := a.name, ctx.Err() != nil && errors.Is(err, ctx.Err()) // first, as ctx may panic
	n.shard.mu.Lock()
	if a.waiter.State == localqueue.Granted {
		n.shard.mu.Unlock()
		return a.deliver()
	}
	st, own := a.inTheWay() // before it leaves, as it parts from its place then
	if a.waiter.InQueue() {
		n.carryOut(a.queue.Take(&a.waiter, localqueue.Idle))
	}
	a.owner.forget(a)
	a.owner.leave()
	n.shard.mu.Unlock()
	a.uncount()
	return a.explain(err, cut, st, own)
}
