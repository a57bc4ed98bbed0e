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

// storeHold is one hold at the store and the lease that is renewed for it, from the
// grant until it is given back or lost. A writer's hold is had by one owner after
// another: while goroutines of this process wait for each other, it passes on
// without a call of the store. A reader's hold is had by several owners at a time.
// Each owner has a token of its own, out of the span that was reserved with the grant.
//
// That is bounded in number by the span, and in time by handoverWindow. So other
// processes wait for at most one such batch, and their places at the store are in
// their order.
type storeHold struct {
	place  *place
	issued uint64 // the token that the store knows it by
	lease  watchdog.Lease

	// Guarded by the shard.
	owners []*ownerHold // that have it
	token  uint64       // the last one given
	spare  int          // tokens of the span that are left
	began  moment       // when the store's grant came

	trouble atomic.Pointer[renewalTrouble] // why its renewals fail; see renewalLog
	over    atomic.Bool                    // it is not renewed any more

	sole [1]*ownerHold // memory for owners
}

// handoverWindow is how long after the store's grant a hold may pass on, or be
// joined. Where critical sections are so long that this ends a batch, the round trip
// that a local hand-over saves does not matter.
const handoverWindow = moment(10 * time.Millisecond)

// init arms the lease of what p was granted.
func (s *storeHold) init(p *place, g request.Grant) {
	s.place = p
	s.issued, s.token, s.spare = g.Token, g.Token, g.Spare
	s.owners = s.sole[:0]
	c := p.name.client
	s.began = c.moment(g.At)
	s.lease.Value = s
	t := watchdog.Terms{Deadline: g.Deadline, Now: g.At}
	if !p.config.Fixed {
		t.Validity = p.config.TTL - request.Margin(p.config.TTL)
	}
	if p.config.MaxHold > 0 {
		t.Last = g.At.Add(p.config.MaxHold)
	}
	c.dog.Keep(&s.lease, t)
}

// late reports whether the lease was over before an owner had the hold, so that the
// grant is of no use. A lease that MaxHold has ended is not late: the next grant would be
// over too, and Lock would try for ever. The owner gets the hold and its loss.
func (s *storeHold) late() bool { return !s.lease.Valid() && s.cause() != ErrMaxHold }

// giveUp ends the renewal of a hold that no owner was given.
func (s *storeHold) giveUp() {
	s.lease.Disarm()
	s.place.name.client.renewals.ended(s)
}

func (s *storeHold) mode() store.Mode { return s.place.mode() }

// buildOn compares with the other holds that o has of this name. If the store has answered
// with their token, the owner keeps the token that it was given. The shard is locked.
func (s *storeHold) buildOn(o *ownerState) {
	if s.issued == o.storeToken {
		s.token = o.ownToken
	}
}

// serve gives the hold to the owner of a call, which is woken. The shard is locked.
func (s *storeHold) serve(a *Call) {
	n, o := a.name, a.owner
	if s.place.identity.requests > 1 {
		s.spare = 0 // the grant may be a re-entry, and the tokens after it another hold's
	}
	if a.waiter.InQueue() {
		n.carryOut(n.queue.Serve(&a.waiter))
		o.forget(a)
	}
	a.waiter.State = localqueue.Granted
	g := &a.holdMemory
	g.store, g.owner, g.token = s, o, s.token
	if s.token != s.issued {
		o.storeToken, o.ownToken = s.issued, s.token
	}
	if len(s.owners) == 0 {
		n.storeHolds++
	}
	n.ownerHolds++
	n.serving = s
	s.owners = append(s.owners, g)
	o.holds = append(o.holds, g)
	o.identity = s.place.identity
	g.add(a.Handle)
	o.refs-- // of the call: the handle has its own
	o.bypass()
	a.wake()
}

// next goes on to the next token of the span, for an owner that the store is not asked
// for. The shard is locked.
func (s *storeHold) next() {
	s.token++
	s.spare--
	s.place.name.shard.counts.handovers++
}

// end ends the turn of an owner and reports whether it was the last. If others go
// on, the owner has another identity from now on: another call of it may be under
// way. The shard is locked.
func (s *storeHold) end(g *ownerHold) (last bool) {
	o, n := g.owner, g.owner.name
	s.owners = slices.DeleteFunc(s.owners, func(x *ownerHold) bool { return x == g })
	o.holds = slices.DeleteFunc(o.holds, func(x *ownerHold) bool { return x == g })
	n.ownerHolds--
	if len(s.owners) > 0 {
		o.identity = nil
		return false
	}
	n.storeHolds--
	return true
}

// isOpen reports whether the hold may pass on, or be joined, now. If more was asked for
// under its identity the store would grant that as a re-entry, to an owner that has
// passed the hold on: then it stays where it is. The shard is locked.
func (s *storeHold) isOpen() bool {
	c := s.place.name.client
	return s.spare > 0 && s.place.identity.requests == 1 && c.now()-s.began < handoverWindow && !c.isClosing.Load() && s.lease.Valid()
}

// successor returns the call of the next writer here that the hold can pass on to
// when its last handle is unlocked, or nil. The shard is locked.
func (s *storeHold) successor() *Call {
	n := s.place.name
	w := n.queue.Servable(&s.place.config.kind)
	if s.mode() != store.Exclusive || w == nil || len(s.owners) != 1 || !s.isOpen() {
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
func (s *storeHold) pass(g *ownerHold, a *Call) {
	n := a.name
	n.ownerHolds++ // the name is held throughout
	s.end(g)
	g.owner.identity = nil
	s.next()
	s.serve(a)
	n.ownerHolds--
}

// mayJoin reports whether a reader's call can share s. An owner that has an identity, or
// another call under way that may get one, is known to the store apart from s, so it
// asks for itself. The shard is locked.
func (s *storeHold) mayJoin(a *Call) bool {
	return s != nil && len(s.owners) > 0 && s.place.config.kind == a.Config.kind && a.Config.shareable() &&
		a.owner.identity == nil && a.owner.refs == 1 && a.name.queue.ReaderMayJoin() && s.isOpen()
}
