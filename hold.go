package dlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/watchdog"
)

// Hold is one handle on a lock: each successful call returns its own. Nested
// handles of one owner on one name share a grant of the store, which is given
// back with the last of them. A Hold is safe for concurrent use.
//
// Unlock every handle, also of a lost hold: until all of them are unlocked, the
// owner's further calls for that name return ErrLost.
type Hold struct {
	grant *grant
	ended atomic.Bool // err is set; lets live be read without the shard

	// Guarded by the grant's shard.
	next, prev *Hold // among the live handles of the grant
	err        error // why it is held no longer; nil while it is
	unlocked   bool
	done       chan struct{}           // made when first asked for
	inDo       context.CancelCauseFunc // of the one context that Do made
	contexts   map[context.Context]context.CancelCauseFunc
}

// Unlock gives this handle back, and with the last handle of its grant the
// lock: then it returns nil when the store has confirmed, or ErrUnavailable with the
// store's error after StoreTimeout, while the release goes on in the background until
// it is confirmed or the lease has run out. In any case the handle is over at once.
//
// A second call returns ErrNotHeld, a call for a lost hold ErrLost, the first one after
// Client.Close an error that is both ErrNotHeld and ErrClosed, and one for a store that
// was closed before ErrClosed, as the lock is left to its lease; each in an *Error. No
// call takes another handle's hold away.
func (h *Hold) Unlock() error {
	if err := h.unlock(); err != nil {
		return &Error{Op: "unlock", Name: h.Name(), Err: err}
	}
	return nil
}

func (h *Hold) unlock() error {
	g := h.grant
	if calls := &g.tenure.client.calls; calls.enter() {
		defer calls.exit() // Close waits for the release
	}
	last, unwanted, err := h.finish()
	if err != nil || !last {
		return err
	}
	deadline := time.Now().Add(g.tenure.attempt.terms.timeout)
	err = g.giveBack(h, deadline)
	if unwanted != nil {
		unwanted.awaitEnd(deadline)
	}
	return err
}

// abandon is unlock for a handle that nobody has: it does not wait for the store.
func (h *Hold) abandon() {
	if last, _, _ := h.finish(); last {
		n := h.grant.tenure
		n.client.cleaner.add(n.attempt)
	}
}

// finish ends the handle. It returns last if nobody is left who has the hold at
// the store, which has to be given back then, and with it the place there that
// the unwanted envoy keeps: else that would be granted to nobody for a moment.
func (h *Hold) finish() (last bool, unwanted *envoy, err error) {
	g, p, n := h.grant, h.grant.party, h.grant.tenure
	sh := n.shard
	sh.mu.Lock()
	if h.unlocked {
		sh.mu.Unlock()
		return false, nil, ErrNotHeld
	}
	h.unlocked = true

	var after aftermath
	var heir *ticket
	if h.err == nil {
		last = h.next == nil && h.prev == nil && len(n.grants) == 1
		if last {
			heir = n.heir()
		}
		if heir == nil && (last && !n.lease.Disarm() || !last && !n.lease.Valid()) {
			after = n.lose(watchdog.DeadlinePassed)
		}
	}
	if h.err != nil {
		err := h.err
		if errors.Is(err, ErrLost) {
			p.lost--
		}
		p.leave()
		sh.mu.Unlock()
		after.run()
		return false, nil, err
	}

	after.end(h, ErrNotHeld)
	if g.handles == nil {
		n.end(g)
	}
	switch {
	case heir != nil:
		n.pass(heir)
		last = false
	case last:
		unwanted = p.local.line.spare()
	}
	p.leave()
	sh.mu.Unlock()
	after.run()
	return last, unwanted, nil
}

// Token returns the fencing token of the grant, the same for all of its nested
// handles. A writer's is greater than that of every earlier grant of the name; readers'
// are greater than those of earlier writers and differ, in no order among each other:
// readers of one process share a span. Send a writer's with each access to the resource, reads too, and let
// the resource refuse tokens lower than the highest it has seen; who holds only a
// reader's lock sends none. Package fence says why.
func (h *Hold) Token() uint64 { return h.grant.token }

// Done returns a channel that is closed when this handle is lost or unlocked,
// in the latter case before the store is told.
func (h *Hold) Done() <-chan struct{} {
	sh := h.grant.party.local.shard
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

// Err returns nil while the lock is held, then ErrLost or ErrNotHeld (which
// also matches ErrClosed if Client.Close released it). It reads the clock, so
// it is right also when the process was stopped for longer than the lease and
// Done has not had the time to close.
func (h *Hold) Err() error {
	g := h.grant
	sh := g.party.local.shard
	sh.mu.Lock()
	var after aftermath
	if h.err == nil && !g.tenure.lease.Valid() {
		after = g.tenure.lose(watchdog.DeadlinePassed)
	}
	err := h.err
	sh.mu.Unlock()
	after.run()
	return err
}

// live is Err() == nil without the shard's lock and without consequences.
func (h *Hold) live() bool { return !h.ended.Load() && h.grant.tenure.lease.Valid() }

// Context returns a context that carries the owner of this hold, for functions
// that take the same lock, and is cancelled when this handle ends, with ErrLost
// or ErrNotHeld as its cause (see [context.Cause]), or when parent is. When it is
// unlocked and passes on within the process, the next holder may be there in the
// same moment; let no goroutine that goes by the context outlive the handle.
func (h *Hold) Context(parent context.Context) context.Context {
	ctx, cancel := h.scope(parent)
	ended := !h.ifHeld(func() {
		if h.contexts == nil {
			h.contexts = make(map[context.Context]context.CancelCauseFunc)
		}
		h.contexts[ctx] = cancel
	})
	if ended {
		cancel(h.Err())
		return ctx
	}
	// A hold may outlive many contexts; each takes itself out when it ends first.
	sh := h.grant.party.local.shard
	context.AfterFunc(ctx, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		delete(h.contexts, ctx)
	})
	return ctx
}

// doContext is Context for Do, whose one context ends with the hold: nobody
// has to watch whether it ends before.
func (h *Hold) doContext(parent context.Context) context.Context {
	ctx, cancel := h.scope(parent)
	if !h.ifHeld(func() { h.inDo = cancel }) {
		cancel(h.Err())
	}
	return ctx
}

func (h *Hold) scope(parent context.Context) (context.Context, context.CancelCauseFunc) {
	s := &scope{owner: h.Owner(), hold: h}
	return context.WithCancelCause(context.WithValue(parent, scopeKey{}, s))
}

// ifHeld runs f under the shard's lock if the handle holds, or returns false.
func (h *Hold) ifHeld(f func()) bool {
	if h.Err() != nil {
		return false
	}
	sh := h.grant.party.local.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h.err != nil {
		return false
	}
	f()
	return true
}

// Owner returns who holds: the explicit owner of the call, or the private one
// that it got.
func (h *Hold) Owner() Owner { return h.grant.party.owner }

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.grant.party.local.name }

// Count returns how many handles on this name, this one included, its owner
// holds through this client: 1 for a lock that is not nested, 0 when all are
// unlocked or lost.
func (h *Hold) Count() int {
	sh := h.grant.party.local.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return h.grant.party.live
}
