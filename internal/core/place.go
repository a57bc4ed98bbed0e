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

	trouble atomic.Pointer[renewalTrouble] // why its renewals fail; see renewalLog
	over    atomic.Bool                    // it is not renewed any more

	sole [1]*ownerHold // memory for owners
}

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
