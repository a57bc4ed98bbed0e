package core

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/store"
)

// handoverWindow is how long after the store's grant a hold may pass on, or be
// joined. Together with the span of tokens it bounds a batch of local hand-overs, so
// other processes wait for at most one such batch, and their places at the store are in
// their order. Where critical sections are so long that this ends a batch, the round
// trip that a local hand-over saves does not matter.
const handoverWindow = 10 * time.Millisecond

// isOpen reports whether the hold may pass on, or be joined, now. If more was asked for
// under its identity the store would grant that as a re-entry, to an owner that has
// passed the hold on: then it stays where it is. The shard is locked.
func (p *place) isOpen() bool {
	c := p.name.client
	return p.spare > 0 && p.identity.requests == 1 && time.Since(p.began) < handoverWindow &&
		!c.isClosing.Load() && p.lease.Valid()
}

// successor returns the call of the next writer here that the hold can pass on to
// when its last handle is unlocked, or nil. The shard is locked.
func (p *place) successor() *Call {
	n := p.name
	w := n.queue.Servable(&p.config.kind)
	if p.local.Mode != store.Exclusive || w == nil || len(p.owners) != 1 || !p.isOpen() {
		return nil
	}
	if len(n.granted) > 1 {
		return nil // the store has granted the name again: this hold may be gone
	}
	a := w.Value.(*Call)
	if a.owner.identity != nil {
		return nil // something was asked for under another identity of that owner
	}
	return a
}

// mayJoin reports whether a reader's call can share the hold. An owner that has an
// identity, or another call under way that may get one, is known to the store apart from
// the hold, so it asks for itself. The shard is locked.
func (p *place) mayJoin(a *Call) bool {
	return p != nil && p.local.Mode == store.Shared && a.Mode == store.Shared && len(p.owners) > 0 &&
		p.config.kind == a.Config.kind && a.Config.shareable() &&
		a.owner.identity == nil && a.owner.refs == 1 && a.name.queue.ReaderMayJoin() && p.isOpen()
}

// unwanted is told that no waiter relies on the place any more. It is kept for a window
// if this process holds the name, for the next call that waits here: to give it up at
// each hand-over is two calls of the store for each one that is saved. The shard is
// locked.
func (p *place) unwanted() {
	n := p.name
	switch {
	case len(n.granted) == 0 || !p.config.shareable() || p.queue != &n.queue:
		p.drop()
	case p.idle == nil:
		p.idle = time.AfterFunc(handoverWindow, p.checkIdle)
	default:
		p.idle.Reset(handoverWindow)
	}
}

// checkIdle gives the place up if no waiter has come to rely on it.
func (p *place) checkIdle() {
	sh := p.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p.local.Phase != localqueue.Gone && !p.local.Wanted() {
		p.drop()
	}
}

// drop gives the place up. The shard is locked.
func (p *place) drop() {
	p.queue.Forget(p.local)
	p.atRest()
	p.request.Abandon()
}

// dropSpares gives up the places that no waiter relies on, if nobody in this
// process holds the name any more. It returns channels that tell when they are gone.
// The shard is locked.
func (n *nameState) dropSpares() (gone []<-chan struct{}) {
	if len(n.granted) > 0 {
		return nil
	}
	for _, p := range slices.Clone(n.background) { // drop takes p out of the list
		if !p.local.Wanted() {
			gone = append(gone, p.request.Cleared())
			p.drop()
		}
	}
	return gone
}
