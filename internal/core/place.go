package core

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// place is one request at the store: for the front of a queue, or for one call that
// goes past it. When it is granted it becomes a storeHold. In the background it is
// nobody's but the queue's: a call that gets the lock by a local hand-over, or gives
// up, leaves it to the waiters behind.
type place struct {
	name     *nameState
	config   *LockConfig
	queue    *localqueue.Place // nil for a call past the queue
	only     *Call             // that call
	identity *identity
	own      identity // memory for identity
	request  request.Request
	hold     storeHold

	// Guarded by the shard.
	again     *again
	dropped   bool        // nobody wants it any more
	began     moment      // in the background
	idleSince moment      // no waiter relies on it
	idle      *time.Timer // checks that
}

// idleTime is how long a place that no waiter relies on is kept while this process
// holds the name.
const idleTime = handoverWindow

// newPlace returns a place of this call for a request with that id.
func (a *Call) newPlace(id string) *place {
	p := &a.placeMemory
	if a.asked != nil {
		p = new(place) // the first may still be under way, or serve waiters behind
	}
	a.asked = p
	p.name, p.config, p.again = a.name, a.Config, a.again
	p.request.Init(a.Client.sender, &a.Config.Config, a.Config.Name, id, a.Mode)
	return p
}

// prepare counts the request in under its identity. The shard is locked.
func (p *place) prepare(queue bool, tokens int) {
	p.identity.requests++
	p.request.For(p.identity.id, queue, tokens)
}

func (p *place) mode() store.Mode { return p.request.Mode() }

// asksFor reports whether a still relies on this place. The shard is locked.
func (p *place) asksFor(a *Call) bool {
	if p.queue == nil {
		return a.waiter.State == localqueue.Asking || a.waiter.State == localqueue.Following
	}
	return a.waiter.Place == p.queue
}

// follow has the place go on in the background. The shard is locked.
func (p *place) follow() {
	p.began = p.name.client.now()
	if p.queue == nil {
		p.only.waiter.State = localqueue.Following
		return
	}
	p.name.queue.Detach(p.queue)
	p.name.background = append(p.name.background, p)
}

// done takes the outcome of a request in the background.
func (p *place) done(answer request.Answer) {
	if answer.Outcome == request.Granted {
		p.hold.init(p, answer.Grant)
	}
	sh := p.name.shard
	sh.mu.Lock()
	if answer.Outcome == request.Granted {
		p.granted()
	} else if !p.dropped {
		p.refused(answer.Err)
	}
	sh.mu.Unlock()
}

// granted gives the hold to the calls that rely on the place, or back to the store.
// A call that asked on its own goroutine fails if the grant is of no use; waiters
// that followed the place ask for themselves. The shard is locked.
func (p *place) granted() {
	n, s := p.name, &p.hold
	var err error
	switch {
	case p.dropped: // and abandoned: the request releases what it was granted
		s.giveUp()
		return
	case n.client.isClosing.Load():
		err = request.ErrClosed
	case s.late():
		err = request.ErrExpired
	}
	if p.queue == nil {
		p.grantedDirectly(err)
	} else {
		p.grantedFront(err)
	}
	if len(s.owners) == 0 {
		s.giveUp()
		p.dropped = true
		p.request.Abandon()
	}
}

// grantedDirectly gives the hold to the one call that asked for it.
func (p *place) grantedDirectly(err error) {
	a := p.only
	if err == nil && a.owner.lost > 0 {
		err = ErrLostOuter
	}
	switch {
	case !p.asksFor(a): // it has gone
	case err != nil:
		a.fail(err)
	case p.strange(a.owner):
		p.askAgain(a)
	default:
		p.hold.buildOn(a.owner)
		p.hold.serve(a)
	}
}

// strange reports whether o got the name under another identity meanwhile. To the store
// this request is that of another owner then. The shard is locked.
func (p *place) strange(o *ownerState) bool {
	return len(o.holds) > 0 && o.identity != nil && o.identity.id != p.identity.id
}

// askAgain has the call of this place begin again. It re-enters a hold of its owner, or
// sends a request with that hold's owner id.
func (p *place) askAgain(a *Call) {
	a.waiter.State = localqueue.Direct
	a.wake()
}

// grantedFront gives the hold to the writer at the front, or to the readers there.
func (p *place) grantedFront(err error) {
	n, s := p.name, &p.hold
	p.atRest()
	// The call that asked on its own goroutine is told why. Waiters that followed it have
	// another place after Fail.
	if asker := p.queue.Asker(); err != nil && asker != nil && p.queue.Phase == localqueue.Inline {
		n.carryOut(n.queue.Fail(p.queue, false, func(w *localqueue.Waiter) bool {
			return w == asker && w.Value.(*Call).failing(err)
		}))
		return
	}
	// At first, so that no waiter that comes to the front while others are served
	// follows a place that is over.
	n.queue.Forget(p.queue)
	for err == nil {
		w := n.queue.Follower(p.queue)
		if w == nil || len(s.owners) > 0 && s.spare == 0 {
			break
		}
		if len(s.owners) > 0 {
			s.next()
		}
		s.serve(w.Value.(*Call))
	}
	if p.mode() == store.Shared && s.spare > 0 {
		n.reading = s
	}
	n.carryOut(n.queue.End(p.queue))
}

// atRest notes that the request of the place is over. The shard is locked.
func (p *place) atRest() {
	n := p.name
	n.background = slices.DeleteFunc(n.background, func(x *place) bool { return x == p })
	if p.idle != nil {
		p.idle.Stop()
	}
}

// unwanted is told that no waiter relies on the place any more. It is kept for a
// while if this process holds the name, for the next call that waits here. The shard
// is locked.
func (p *place) unwanted() {
	if p.dropped || p.queue.Phase == localqueue.Gone {
		return
	}
	if p.name.ownerHolds == 0 || !p.config.shareable() {
		p.drop()
		return
	}
	p.idleSince = p.name.client.now()
	if p.idle == nil {
		p.idle = time.AfterFunc(time.Duration(idleTime), p.checkIdle)
	}
}

// checkIdle gives the place up if no waiter has relied on it for a while.
func (p *place) checkIdle() {
	busy := p.name.client.sender.Busy()
	busy.Add()
	defer busy.Done()
	sh := p.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case p.dropped || p.queue.Phase == localqueue.Gone:
	case p.queue.Wanted():
		p.idle = nil
	default:
		if left := idleTime - (p.name.client.now() - p.idleSince); left > 0 {
			p.idle.Reset(time.Duration(left))
			return
		}
		p.drop()
	}
}

// drop gives the place up. The shard is locked.
func (p *place) drop() {
	p.dropped = true
	if p.queue != nil {
		p.name.queue.Forget(p.queue)
		p.atRest()
	}
	p.request.Abandon()
}
