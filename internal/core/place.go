package core

import (
	"errors"
	"slices"
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
// was reserved with the grant.
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

	// Guarded by the shard, but for keep.
	lostIDs int          // that its call has lost in a row before
	outer   *ownerHold   // that the owner had when it asked; nil: none
	idle    *time.Timer  // runs checkIdle
	began   time.Time    // when it went to the background; once granted, when the grant came
	owners  []*ownerHold // that have the hold
	issued  uint64       // the token that the store knows it by
	token   uint64       // the last one given
	spare   int          // tokens of the span that are left

	trouble *renewalTrouble // guarded by renewalLog

	sole [1]*ownerHold // memory for owners
}

// settle ends the asking, with a grant or a refusal.
func (p *place) settle(answer request.Answer) {
	granted := answer.Outcome == request.Granted
	if granted {
		p.keep(answer.Grant)
	}
	sh := p.name.shard
	var fx effects
	sh.mu.Lock()
	if granted {
		if answer.Grant.Alone {
			p.endOuter(&fx)
		}
		p.granted()
	} else {
		p.refused(answer)
	}
	p.outer = nil // else holds that follow one another would keep each other in memory
	sh.mu.Unlock()
	fx.run(p.name.client)
}

// endOuter ends the hold that the owner had when it asked for this one. The store does not
// know that hold any more, so another owner may have had the lock since. The shard is
// locked.
func (p *place) endOuter(fx *effects) {
	if g := p.outer; g != nil && g.handles != nil && g.place.identity.id == p.identity.id {
		g.place.endAll(fx, ErrGone)
	}
}

// keep arms the lease of what the place was granted. Nobody else looks at what it
// writes before granted, so the shard is not locked.
func (p *place) keep(g request.Grant) {
	p.issued, p.token, p.spare = g.Token, g.Token, g.Spare
	p.owners = p.sole[:0]
	c := p.name.client
	p.began = g.At
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

// granted gives the hold to the writer that relies on the place, or to the readers, or
// back to the store. The shard is locked.
func (p *place) granted() {
	n, q := p.name, p.queue
	p.atRest()
	// At first, so that no waiter that comes to the front while others are served
	// follows a place that is over.
	q.Forget(p.local)
	// While the client closes no hold is added, and the waiters find that out themselves.
	for !n.client.isClosing.Load() {
		w := q.FirstOn(p.local)
		if w == nil || len(p.owners) > 0 && p.spare == 0 {
			break
		}
		a := w.Value.(*Call)
		if len(p.owners) > 0 {
			p.next()
		} else {
			p.buildOn(a.owner)
		}
		p.serve(a)
	}
	n.carryOut(q.End(p.local))
	if len(p.owners) == 0 {
		p.giveUp()
	}
}

// atRest notes that the request of the place is over. The shard is locked.
func (p *place) atRest() {
	n := p.name
	if i := slices.Index(n.background, p); i >= 0 { // in a crowd that is one of the first
		n.background = slices.Delete(n.background, i, i+1)
	}
	if p.idle != nil {
		p.idle.Stop()
	}
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
		n.carryOut(a.queue.Take(&a.waiter, localqueue.Granted))
		o.forget(a)
	}
	a.waiter.State = localqueue.Granted
	g := &a.holdMemory
	g.place, g.owner, g.token = p, o, p.token
	if p.token != p.issued {
		o.storeToken, o.ownToken = p.issued, p.token
	}
	if len(p.owners) == 0 {
		n.granted = append(n.granted, p)
	}
	p.owners = append(p.owners, g)
	o.holds = append(o.holds, g)
	o.identity = p.identity
	g.add(a.Handle)
	o.refs-- // of the call: the handle has its own
	o.restart()
	a.wake()
}

// next goes on to the next token of the span, for an owner that the store is not asked
// for. The shard is locked.
func (p *place) next() {
	p.token++
	p.spare--
	p.name.client.handed.Add(1)
}

// end ends the turn of an owner. If others go on, the owner has another identity from
// now on: another call of it may be under way. The shard is locked.
func (p *place) end(g *ownerHold) {
	o, n := g.owner, g.owner.name
	p.owners = slices.DeleteFunc(p.owners, func(x *ownerHold) bool { return x == g })
	o.holds = slices.DeleteFunc(o.holds, func(x *ownerHold) bool { return x == g })
	if len(p.owners) > 0 {
		o.identity = nil
	} else {
		n.granted = slices.DeleteFunc(n.granted, func(x *place) bool { return x == p })
	}
}

// giveUp gives back a hold that no owner has. The shard is locked.
func (p *place) giveUp() {
	p.lease.Disarm()
	p.name.client.renewals.ended(p)
	p.request.Abandon()
}

// maxLostIDs is how often in a row a call goes on with another id when the store
// has given up the one that it asked by.
const maxLostIDs = 3

// refused ends the place with an error of the store: that fails the calls that it
// concerns, and the others ask for themselves. Refused: to fail all that followed. Their
// own requests may be granted, as they have other ids, or more patience. The shard is
// locked.
func (p *place) refused(answer request.Answer) {
	n, first, err := p.name, p.queue.FirstOn(p.local), answer.Err
	p.request.Abandon()
	p.atRest()
	// The store gives an id up whose place has expired, because the process stood still or
	// could not reach the store. With another id the call begins at the end of the queue.
	// A place that lasted longer than the TTL begins a new row of lost ids.
	// A grant that came too late is no fault of those that wait either. The first request,
	// on the goroutine of a call, ends that call in both cases.
	late, silent := errors.Is(err, request.ErrExpired), isUnavailable(err)
	lost := errors.Is(err, store.ErrLost) && !late
	if time.Since(p.began) > p.config.TTL {
		p.lostIDs = 0
	}
	if p.local.Phase == localqueue.Background && (late || lost && p.lostIDs < maxLostIDs) {
		if lost && first != nil {
			a := first.Value.(*Call)
			a.lostIDs, a.identity = p.lostIDs+1, p.identity
		}
		n.carryOut(p.queue.End(p.local))
		return
	}
	// If the store was silent for a whole TTL the waiters behind the front fail too: the
	// next place would meet the same silence, for one more TTL. Those that came lately,
	// or have a longer TTL, ask for themselves.
	actions := p.queue.Fail(p.local, silent && !answer.Late, func(w *localqueue.Waiter) bool {
		a := w.Value.(*Call)
		return !((lost || late) && w != first || // it concerns this id alone
			silent && !a.Try && time.Since(a.since) < a.Config.TTL/2 ||
			w.Place != p.local && a.Config.TTL > p.config.TTL)
	})
	for _, do := range actions {
		if do.Wake.State == localqueue.Failed {
			a := do.Wake.Value.(*Call)
			a.err = err
			a.owner.forget(a)
		}
	}
	n.carryOut(actions)
}
