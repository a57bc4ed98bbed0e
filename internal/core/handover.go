package core

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/store"
)

// A writer's hold is had by one owner after another: while goroutines of this process
// wait for each other, it passes on without a call of the store. A reader's hold is had
// by several owners at a time. Each owner has a token of its own, out of the span that
// was reserved with the grant.
//
// That is bounded in number by the span, and in time by handoverWindow. So other
// processes wait for at most one such batch, and their places at the store are in
// their order.

// handoverWindow is how long after the store's grant a hold may pass on, or be
// joined. Where critical sections are so long that this ends a batch, the round trip
// that a local hand-over saves does not matter.
const handoverWindow = moment(10 * time.Millisecond)

// buildOn compares with the other holds that o has of this name. If the store has answered
// with their token, the owner keeps the token that it was given. The shard is locked.
func (p *place) buildOn(o *ownerState) {
	if p.issued == o.storeToken {
		p.token = o.ownToken
	}
}

// serve gives the hold to the owner of a call, which is woken. The shard is locked.
func (p *place) serve(a *Call) {
	n, o := a.name, a.owner
	if p.identity.requests > 1 {
		p.spare = 0 // the grant may be a re-entry, and the tokens after it another hold's
	}
	if a.waiter.InQueue() {
		n.carryOut(a.queue.Serve(&a.waiter))
		o.forget(a)
	}
	a.waiter.State = localqueue.Granted
	g := &a.holdMemory
	g.place, g.owner, g.token = p, o, p.token
	if p.token != p.issued {
		o.storeToken, o.ownToken = p.issued, p.token
	}
	if len(p.owners) == 0 {
		n.storeHolds++
	}
	n.ownerHolds++
	n.serving = p
	p.owners = append(p.owners, g)
	o.holds = append(o.holds, g)
	o.identity = p.identity
	g.add(a.Handle)
	o.refs-- // of the call: the handle has its own
	o.bypass()
	a.wake()
}

// next goes on to the next token of the span, for an owner that the store is not asked
// for. The shard is locked.
func (p *place) next() {
	p.token++
	p.spare--
	p.name.shard.counts.handovers++
}

// end ends the turn of an owner and reports whether it was the last. If others go
// on, the owner has another identity from now on: another call of it may be under
// way. The shard is locked.
func (p *place) end(g *ownerHold) (last bool) {
	o, n := g.owner, g.owner.name
	p.owners = slices.DeleteFunc(p.owners, func(x *ownerHold) bool { return x == g })
	o.holds = slices.DeleteFunc(o.holds, func(x *ownerHold) bool { return x == g })
	n.ownerHolds--
	if len(p.owners) > 0 {
		o.identity = nil
		return false
	}
	n.storeHolds--
	return true
}

// isOpen reports whether the hold may pass on, or be joined, now. If more was asked for
// under its identity the store would grant that as a re-entry, to an owner that has
// passed the hold on: then it stays where it is. The shard is locked.
func (p *place) isOpen() bool {
	c := p.name.client
	return p.spare > 0 && p.identity.requests == 1 && c.now()-p.began < handoverWindow && !c.isClosing.Load() && p.lease.Valid()
}

// successor returns the call of the next writer here that the hold can pass on to
// when its last handle is unlocked, or nil. The shard is locked.
func (p *place) successor() *Call {
	n := p.name
	w := n.queue.Servable(&p.config.kind)
	if p.mode() != store.Exclusive || w == nil || len(p.owners) != 1 || !p.isOpen() {
		return nil
	}
	if n.storeHolds > 1 {
		return nil // the store has granted the name again: this hold may be gone
	}
	a := w.Value.(*Call)
	if a.owner.identity != nil {
		return nil // something was asked for under another identity of that owner
	}
	return a
}

// pass gives the hold of g to the next writer. The shard is locked.
func (p *place) pass(g *ownerHold, a *Call) {
	n := a.name
	n.ownerHolds++ // the name is held throughout
	p.end(g)
	g.owner.identity = nil
	p.next()
	p.serve(a)
	n.ownerHolds--
}

// mayJoin reports whether a reader's call can share the hold. An owner that has an identity, or
// another call under way that may get one, is known to the store apart from it, so it
// asks for itself. The shard is locked.
func (p *place) mayJoin(a *Call) bool {
	return p != nil && len(p.owners) > 0 && p.config.kind == a.Config.kind && a.Config.shareable() &&
		a.owner.identity == nil && a.owner.refs == 1 && a.name.queue.ReaderMayJoin() && p.isOpen()
}
