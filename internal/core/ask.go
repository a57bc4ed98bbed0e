package core

import (
	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// askForFront asks the store for the front of the queue, where this call stands. It
// does so on this goroutine if nobody in this process holds the name, and else in
// the background, since the lock may be handed over meanwhile.
func (a *Call) askForFront() (localqueue.State, error) {
	if err := a.over(); err != nil {
		return localqueue.Asking, err
	}
	// The ids are drawn without the mutex: the kernel may take its time. The waiter may
	// be served by a local hand-over meanwhile.
	owner, id := request.NewIDs()
	n, w := a.name, &a.waiter
	n.shard.mu.Lock()
	if state := w.State; state != localqueue.Asking {
		n.shard.mu.Unlock()
		return state, nil
	}
	p := a.newPlace(id)
	p.queue = w.Place
	p.queue.Value = p
	if a.again != nil {
		p.identity = a.again.identity
	} else {
		p.own = identity{id: owner}
		p.identity = &p.own
	}
	inline := n.ownerHolds == 0
	// A span of tokens is for hand-overs that the store does not see. A writer that is
	// alone here has no waiter to pass the hold to. Under an identity that was asked for
	// before the grant may be a re-entry, and then the next tokens are another hold's.
	tokens := 1
	if a.Config.shareable() && p.identity.requests == 0 && (a.Mode == store.Shared || !inline || !a.owner.alone()) {
		tokens += a.Config.Handoffs
	}
	p.prepare(true, tokens)
	if inline {
		p.queue.Phase = localqueue.Inline
	} else {
		p.follow()
		if a.since == 0 {
			a.since = p.began
		}
	}
	n.shard.mu.Unlock()
	if inline {
		return a.answered(p, p.request.Send(a.ctx))
	}
	p.request.Start(p.done)
	return localqueue.Following, nil
}

// askDirectly asks the store past the queue, for the owner itself.
func (a *Call) askDirectly() (localqueue.State, error) {
	if err := a.over(); err != nil {
		return localqueue.Direct, err
	}
	owner, id := request.NewIDs()
	n := a.name
	n.shard.mu.Lock()
	done, err := a.reenter(nil)
	if !done && err == nil {
		err = a.owner.standAlone()
	}
	if done || err != nil {
		n.shard.mu.Unlock()
		return a.waiter.State, err
	}
	p := a.newPlace(id)
	p.only = a
	p.identity = a.owner.known(owner)
	p.prepare(!a.Try, 1)
	a.waiter.State = localqueue.Asking
	n.shard.mu.Unlock()
	if a.Try {
		return a.answered(p, p.request.Try(a.ctx, a.Client.closing))
	}
	return a.answered(p, p.request.Send(a.ctx))
}

// answered goes on after a request on this goroutine.
func (a *Call) answered(p *place, answer request.Answer) (localqueue.State, error) {
	switch answer.Outcome {
	case request.Granted:
		p.hold.init(p, answer.Grant)
		return a.settle(p, nil)
	case request.Refused:
		return a.settle(p, answer.Err)
	}
	err := a.over()
	n, sent := a.name, a.Client.moment(p.request.Sent())
	n.shard.mu.Lock()
	a.askedAt(sent)
	// The call does not rely on the place any more if its owner has the lock by another
	// call of its own meanwhile: then the call re-enters.
	if err == nil && p.asksFor(a) {
		p.follow()
		n.shard.mu.Unlock()
		p.request.Poll(answer, p.done)
		return localqueue.Following, nil
	}
	state := a.waiter.State
	n.shard.mu.Unlock()
	p.request.Abandon()
	return state, err
}

// settle ends the asking on this goroutine: with a grant, or with err.
func (a *Call) settle(p *place, err error) (localqueue.State, error) {
	n := a.name
	n.shard.mu.Lock()
	if err == nil {
		p.granted()
	} else {
		p.refused(err)
	}
	state := a.waiter.State
	if state == localqueue.Granted && a.Config.MaxHold == 0 {
		a.Handle.delivered, a.leaseChecked = true, true // granted has just read the clock
	}
	n.shard.mu.Unlock()
	return state, nil
}
