package core

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dlock-go/dlock/store"
)

// maxHandles bounds the nested handles of one owner, long before a count wraps.
const maxHandles = math.MaxInt32

// ownerHold is one owner's turn with a hold at the store; the nested handles of the owner
// share it. Whether it is held is decided in one place, the lease: no field here says so,
// so none can disagree with the clock.
type ownerHold struct {
	place *place
	owner *ownerState
	token uint64

	// Guarded by the shard.
	handles *Handle // those that hold, newest first
	told    bool    // its loss is told
}

// Handle is one successful lock call. Its zero value is ready for a Call. It is safe
// for concurrent use.
type Handle struct {
	Value any // the caller's

	turn *ownerHold

	// Guarded by the shard.
	next, prev *Handle                                     // among the handles of the ownerHold that hold
	err        error                                       // why it is held no longer; nil while it is
	done       chan struct{}                               // made when first asked for
	inDo       context.CancelCauseFunc                     // of the one context that Do made
	contexts   map[context.Context]context.CancelCauseFunc // that were made from it
	atEnd      func(error)                                 // see AtEnd
	delivered  bool                                        // its caller has it: its loss is told
	nested     bool                                        // its owner held the name already
	unlocked   bool
	grace      *grace // warns it; nil: nothing does

}

// delivered reports whether the call of one of its handles has returned. The shard is locked.
func (g *ownerHold) delivered() bool {
	for h := g.handles; h != nil; h = h.next {
		if h.delivered {
			return true
		}
	}
	return false
}

// add adds a handle. The shard is locked and the owner's turn has not ended.
func (g *ownerHold) add(h *Handle) {
	h.turn, h.next = g, g.handles
	if g.handles != nil {
		g.handles.prev = h
	}
	g.handles = h
	h.nested = g.owner.live > 0
	g.owner.refs++
	g.owner.live++
}

func (h *Handle) shard() *shard { return h.turn.owner.name.shard }

// Unlock ends the handle, and with the last handle of a hold at the store gives that
// back. It returns when the store has confirmed that, or after the timeout; see
// request.Request.Release for the errors.
func (h *Handle) Unlock() error {
	g := h.turn
	p := g.place
	sh := h.shard()
	sh.calls.Add() // Close waits for the release
	defer sh.calls.Done()
	last, spares, err := h.finish()
	if err != nil || !last {
		return err
	}
	var bound <-chan time.Time
	if len(spares) > 0 {
		bound = time.After(p.config.Timeout)
	}
	err = h.release()
	// A place that is still at the store when Unlock returns could be granted, and keep
	// the name from other processes for a moment. Its release runs since before the
	// hold's, so this seldom waits.
	for _, gone := range spares {
		select {
		case <-gone:
		case <-bound:
			return err
		}
	}
	return err
}

// release gives the hold back, and tells of the end of the handle, also if the store panics.
func (h *Handle) release() error {
	p, c := h.turn.place, h.turn.owner.name.client
	reason := ErrNotHeld
	defer func() {
		if h.atEnd != nil { // nothing changes it after the end
			h.atEnd(reason)
		}
	}()
	err := p.request.Release(c.closing)
	if errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrForeignKey) {
		reason, err = ErrGone, c.goneAtRelease(h, err)
	}
	return err
}

// finish ends the handle. It reports last if no owner is left that has the hold at
// the store. Then the caller gives the hold back, and calls atEnd. The spare places go
// at the same time: else the store would grant the lock to a place that no call wants
// any more.
func (h *Handle) finish() (last bool, spares []<-chan struct{}, err error) {
	g := h.turn
	p, o := g.place, g.owner
	sh := h.shard()
	var fx effects
	sh.mu.Lock()
	if h.unlocked {
		sh.mu.Unlock()
		return false, nil, errUnlocked
	}
	h.unlocked = true
	var next *Call
	last = h.err == nil && h.next == nil && h.prev == nil && len(p.owners) == 1
	if last {
		next = p.successor()
	}
	// The clock decides, not the timer: after its deadline the hold may be another
	// process's, and Unlock has to say so. A hold that passes on keeps its lease armed;
	// successor has looked at it.
	if h.err == nil && next == nil && (last && !p.lease.Disarm() || !last && !p.lease.Valid()) {
		p.endAll(&fx, p.cause())
	}
	switch err = h.err; {
	case err != nil:
		last = false
		if errors.Is(err, store.ErrLost) && h.delivered {
			o.lost--
		}
	case next != nil:
		last = false
		fx.end(h, ErrNotHeld)
		p.next()
		p.serve(next) // before the end, so that the name is held throughout
		p.end(g)
	case last:
		fx.endContexts(h, ErrNotHeld) // AtEnd is told when the store has answered
		p.end(g)
		o.name.client.renewals.ended(p)
		spares = o.name.dropSpares()
	default:
		fx.end(h, ErrNotHeld)
		if g.handles == nil {
			p.end(g)
		}
	}
	o.leave()
	sh.mu.Unlock()
	fx.run(o.name.client)
	return last, spares, err
}

// Err returns nil while the lock is held, and then why it is not. It reads the
// clock, so it is right also when the process was stopped for longer than the lease.
func (h *Handle) Err() error {
	sh := h.shard()
	var fx effects
	sh.mu.Lock()
	if h.err == nil && !h.turn.place.lease.Valid() {
		h.turn.place.endAll(&fx, h.turn.place.cause())
	}
	err := h.err
	sh.mu.Unlock()
	fx.run(h.turn.owner.name.client)
	return err
}

// Live is Err() == nil for a handle that was not unlocked, without the shard's mutex and
// without consequences.
func (h *Handle) Live() bool { return h.turn.place.lease.Valid() }

// Done returns a channel that is closed when the handle is lost or unlocked.
func (h *Handle) Done() <-chan struct{} {
	sh := h.shard()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.err != nil {
			close(h.done)
		}
	}
	return h.done
}

// Context returns a copy of parent that is cancelled when the handle ends, or at the
// warning before that. With inDo set its only user ends with the handle, so nothing
// watches whether the context ends before.
func (h *Handle) Context(parent context.Context, inDo bool) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	_ = h.Err() // it declares a loss that no timer has found yet
	sh := h.shard()
	var fx effects
	sh.mu.Lock()
	switch {
	case h.err != nil:
		fx.add(cancel, h.err)
	case h.grace != nil && h.grace.warns():
		fx.add(cancel, ErrEnding)
	case inDo:
		h.inDo = cancel
	default:
		if h.contexts == nil {
			h.contexts = make(map[context.Context]context.CancelCauseFunc)
		}
		h.contexts[ctx] = cancel
		// A hold may outlive many contexts; each takes itself out when it ends first.
		context.AfterFunc(ctx, func() {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			delete(h.contexts, ctx)
		})
	}
	sh.mu.Unlock()
	fx.run(h.turn.owner.name.client)
	return ctx
}

// AtEnd has f called once with the reason when the handle ends, on the goroutine that
// ends it, after what earlier calls of AtEnd have asked for. Of the last handle of a
// hold it is called when the hold was released, so a loss that the release finds is
// the reason. f must not block or call the client.
func (h *Handle) AtEnd(f func(error)) {
	sh := h.shard()
	sh.mu.Lock()
	over := h.err
	if before := h.atEnd; before != nil && over == nil {
		h.atEnd = func(err error) { before(err); f(err) }
	} else if over == nil {
		h.atEnd = f
	}
	sh.mu.Unlock()
	if over != nil {
		f(over)
	}
}

// Token returns the fencing token, the same for all nested handles.
func (h *Handle) Token() uint64 { return h.turn.token }

// Owner returns the owner that holds.
func (h *Handle) Owner() Owner { return h.turn.owner.owner }

// Name returns the name of the lock.
func (h *Handle) Name() string { return h.turn.owner.name.name }

// Deadline returns until when the hold is valid if no renewal succeeds, or the zero
// Time if it is not held.
func (h *Handle) Deadline() time.Time {
	sh := h.shard()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h.err != nil {
		return time.Time{}
	}
	return h.turn.place.lease.Deadline()
}

// Nested reports whether the owner held the name already when it got this handle. It is false
// for one handle of each hold that is lost, when AtEnd is called.
func (h *Handle) Nested() bool { return h.nested }

// Count returns how many handles on the name its owner holds through this client.
func (h *Handle) Count() int {
	sh := h.shard()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return int(h.turn.owner.live)
}
