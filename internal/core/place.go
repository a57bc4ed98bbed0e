package core

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// place is one acquisition id of this process at the store: first a request, perhaps
// with a place in the store's queue, and when it is granted a hold with its lease. In
// the background it is nobody's but the queue's: a call that gets the lock by a local
// hand-over, or gives up, leaves it to the waiters behind.
//
// A writer's hold is had by one owner after another: while goroutines of this process
// wait for each other, it passes on without a call of the store. A reader's hold is had
// by several owners at a time. Each owner has a token of its own, out of the span that
// was reserved with the grant. That is bounded in number by the span, and in time by
// handoverWindow. So other processes wait for at most one such batch, and their places
// at the store are in their order.
//
// Refused: a type for the request and one for the hold. They share the name, the id and
// the identity, and each would need the other.
type place struct {
	name     *nameState
	config   *LockConfig
	queue    *localqueue.Queue // of the calls that may rely on it
	local    *localqueue.Place // what that queue knows of it
	identity *identity
	own      identity // memory for identity
	request  request.Request
	lease    watchdog.Lease

	// Guarded by the shard.
	lost    int          // ids that its call has lost in a row before
	dropped bool         // nobody wants it any more
	idle    *time.Timer  // runs checkIdle
	began   moment       // when it went to the background; once granted, when the grant came
	owners  []*ownerHold // that have the hold
	issued  uint64       // the token that the store knows it by
	token   uint64       // the last one given
	spare   int          // tokens of the span that are left

	over atomic.Bool // it is not renewed any more; see renewalLog

	sole [1]*ownerHold // memory for owners
}

// handoverWindow is how long after the store's grant a hold may pass on, or be
// joined. Where critical sections are so long that this ends a batch, the round trip
// that a local hand-over saves does not matter.
const handoverWindow = moment(10 * time.Millisecond)

// newPlace returns a place of this call for a request with that id. The shard is locked.
func (a *Call) newPlace(id string) *place {
	p := &a.placeMemory
	if a.asked != nil {
		p = new(place) // the first may still be under way, or serve waiters behind
	}
	a.asked = p
	p.name, p.config, p.lost = a.name, a.Config, a.lost
	p.queue, p.local, p.identity = a.queue, a.waiter.Place, &p.own
	p.local.Value = p
	p.request.Init(a.Client.sender, &a.Config.Config, a.Config.Name, id, a.Mode)
	return p
}

func (p *place) mode() store.Mode { return p.request.Mode() }

// follow has the place go on in the background. The shard is locked.
func (p *place) follow() {
	p.began = p.name.client.now()
	p.queue.Detach(p.local)
	p.name.background = append(p.name.background, p)
}

// keep arms the lease of what the place was granted.
func (p *place) keep(g request.Grant) {
	p.issued, p.token, p.spare = g.Token, g.Token, g.Spare
	p.owners = p.sole[:0]
	c := p.name.client
	p.began = c.moment(g.At)
	p.lease.Value = p
	t := watchdog.Terms{Deadline: g.Deadline, Now: g.At}
	if !p.config.Fixed {
		t.Validity = p.config.TTL - request.Margin(p.config.TTL)
	}
	if p.config.MaxHold > 0 {
		t.Last = g.At.Add(p.config.MaxHold)
	}
	c.dog.Keep(&p.lease, t)
}

// late reports whether the lease was over before an owner had the hold, so that the
// grant is of no use. A lease that MaxHold has ended is not late: the next grant would be
// over too, and Lock would try for ever. The owner gets the hold and its loss.
func (p *place) late() bool { return !p.lease.Valid() && p.cause() != ErrMaxHold }

// giveUp ends the renewal of a hold that no owner was given.
func (p *place) giveUp() {
	p.lease.Disarm()
	p.name.client.renewals.ended(p)
}

// atRest notes that the request of the place is over. The shard is locked.
func (p *place) atRest() {
	n := p.name
	n.background = slices.DeleteFunc(n.background, func(x *place) bool { return x == p })
	if p.idle != nil {
		p.idle.Stop()
	}
}

// unwanted is told that no waiter relies on the place any more. It is kept for a window
// if this process holds the name, for the next call that waits here: to give it up at
// each hand-over is two calls of the store for each one that is saved. The shard is
// locked.
func (p *place) unwanted() {
	n := p.name
	switch {
	case p.dropped || p.local.Phase == localqueue.Gone:
	case n.ownerHolds == 0 || !p.config.shareable() || p.queue != &n.queue:
		p.drop()
	case p.idle == nil:
		p.idle = time.AfterFunc(time.Duration(handoverWindow), p.checkIdle)
	default:
		p.idle.Reset(time.Duration(handoverWindow))
	}
}

// checkIdle gives the place up if no waiter has come to rely on it.
func (p *place) checkIdle() {
	busy := p.name.client.sender.Busy()
	busy.Add() // so that Close waits for it
	defer busy.Done()
	sh := p.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !p.dropped && p.local.Phase != localqueue.Gone && !p.local.Wanted() {
		p.drop()
	}
}

// drop gives the place up. The shard is locked.
func (p *place) drop() {
	p.dropped = true
	p.queue.Forget(p.local)
	p.atRest()
	p.request.Abandon()
}

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
	p.name.client.handed.Add(1)
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
	return p.spare > 0 && p.identity.requests == 1 && c.now()-p.began < handoverWindow &&
		!c.isClosing.Load() && p.lease.Valid()
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

// mayJoin reports whether a reader's call can share the hold. An owner that has an
// identity, or another call under way that may get one, is known to the store apart from
// the hold, so it asks for itself. The shard is locked.
func (p *place) mayJoin(a *Call) bool {
	return p != nil && p.mode() == store.Shared && a.Mode == store.Shared && len(p.owners) > 0 &&
		p.config.kind == a.Config.kind && a.Config.shareable() &&
		a.owner.identity == nil && a.owner.refs == 1 && a.name.queue.ReaderMayJoin() && p.isOpen()
}
