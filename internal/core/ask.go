package core

import (
	"errors"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// maxLostIDs is how often in a row a call goes on with another id when the store
// has given up the one that it asked by.
const maxLostIDs = 3

// ask sends a request for this call, which stands at the front of its queue. It does so
// on this goroutine if nobody in this process holds the name, and else in the
// background, since the lock may be handed over meanwhile.
func (a *Call) ask() (localqueue.State, error) {
	if err := a.over(); err != nil {
		return localqueue.Asking, err
	}
	// The ids are drawn without the mutex: the kernel may take its time. The waiter may
	// be served by a local hand-over meanwhile.
	owner, id := request.NewIDs()
	n, o := a.name, a.owner
	past := a.queue != &n.queue
	n.shard.mu.Lock()
	state, err := a.waiter.State, o.mayAsk()
	if state != localqueue.Asking || err != nil {
		n.shard.mu.Unlock()
		return state, err
	}
	p := a.newPlace(id)
	switch {
	case past: // the request is for this owner and no other
		p.identity = o.known(owner)
	case a.identity != nil:
		p.identity = a.identity
	default:
		p.own.id = owner
	}
	inline := past || n.ownerHolds == 0
	// A span of tokens is for hand-overs that the store does not see. A writer that is
	// alone here has no waiter to pass the hold to. Under an identity that was asked for
	// before the grant may be a re-entry, and then the next tokens are another hold's.
	tokens := 1
	if !past && a.Config.shareable() && p.identity.requests == 0 && (a.Mode == store.Shared || !inline || !o.alone()) {
		tokens += a.Config.Handoffs
	}
	p.identity.requests++
	p.request.For(p.identity.id, !a.Try, tokens)
	if inline {
		p.local.Phase = localqueue.Inline
	} else {
		p.follow()
		if a.since == 0 {
			a.since = p.began
		}
	}
	n.shard.mu.Unlock()
	switch {
	case !inline:
		p.request.Start(p.done)
		return localqueue.Following, nil
	case a.Try:
		return a.answered(p, p.request.Try(a.ctx, a.Client.closing))
	default:
		return a.answered(p, p.request.Send(a.ctx))
	}
}

// answered goes on after a request on this goroutine. A queued request, and one whose
// outcome is unknown, go to the background: from there any waiter of the queue can be
// served, and the end of this call's context ends no other call's request.
func (a *Call) answered(p *place, answer request.Answer) (localqueue.State, error) {
	if answer.Outcome == request.Granted || answer.Outcome == request.Refused {
		return p.settle(answer, a), nil
	}
	err := a.over()
	n, sent := a.name, a.Client.moment(p.request.Sent())
	n.shard.mu.Lock()
	a.askedAt(sent)
	// The call does not rely on the place any more if its owner has the lock by another
	// call of its own meanwhile: then the call re-enters.
	if err == nil && a.waiter.Place == p.local {
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

// done takes the outcome of a request in the background.
func (p *place) done(answer request.Answer) { p.settle(answer, nil) }

// settle ends the asking, with a grant or a refusal. It returns the state of a, the call
// on whose goroutine that is, unless it is nil.
func (p *place) settle(answer request.Answer, a *Call) (state localqueue.State) {
	granted := answer.Outcome == request.Granted
	if granted {
		p.keep(answer.Grant)
	}
	sh := p.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if granted {
		p.granted()
	} else if !p.dropped {
		p.refused(answer.Err)
	}
	if a == nil {
		return localqueue.Idle
	}
	if a.waiter.State == localqueue.Granted && a.Config.MaxHold == 0 {
		a.Handle.delivered, a.checked = true, true // granted has just read the clock
	}
	return a.waiter.State
}

// granted gives the hold to the writer that relies on the place, or to the readers, or
// back to the store. The shard is locked.
func (p *place) granted() {
	n, q := p.name, p.queue
	var err error
	switch {
	case p.dropped: // and abandoned: the request releases what it was granted
		p.giveUp()
		return
	case n.client.isClosing.Load():
		err = request.ErrClosed
	case p.late():
		err = request.ErrExpired
	}
	p.atRest()
	if asker := p.local.Asker(); err != nil && asker != nil && p.local.Phase == localqueue.Inline {
		// The call on this goroutine is told why. Waiters that followed it ask for themselves.
		n.carryOut(q.Fail(p.local, false, func(w *localqueue.Waiter) bool {
			return w == asker && w.Value.(*Call).failing(err)
		}))
	} else {
		// At first, so that no waiter that comes to the front while others are served
		// follows a place that is over.
		q.Forget(p.local)
		for err == nil {
			w := q.Follower(p.local)
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
	}
	if len(p.owners) == 0 {
		p.giveUp()
		p.dropped = true
		p.request.Abandon()
	}
}

// refused ends the place with an error of the store: that fails the calls that it
// concerns, and the others ask for themselves. Refused: to fail all that followed. Their
// own requests may be granted, as they have other ids, or more patience. The shard is
// locked.
func (p *place) refused(err error) {
	n, first := p.name, p.queue.Follower(p.local)
	p.dropped = true
	p.request.Abandon()
	p.atRest()
	// The store gives an id up whose place has expired, because the process stood still or
	// could not reach the store. With another id the call begins at the end of the queue.
	// A place that lasted longer than the TTL begins a new row of lost ids.
	lost := errors.Is(err, store.ErrLost) && !errors.Is(err, request.ErrExpired)
	if n.client.now()-p.began > moment(p.config.TTL) {
		p.lost = 0
	}
	again := lost && p.lost < maxLostIDs && p.request.MayBePresent()
	if again && first != nil {
		a := first.Value.(*Call)
		a.lost, a.identity, again = p.lost+1, p.identity, !a.Try
	}
	// A grant that came too late in the background is no fault of those that wait: they
	// ask for themselves. On the goroutine of a call it ends that call.
	late := errors.Is(err, request.ErrExpired) && p.local.Phase == localqueue.Background
	if again || late {
		n.carryOut(p.queue.End(p.local))
		return
	}
	// If the store was silent for a whole TTL the waiters behind the front fail too: the
	// next place would meet the same silence, for one more TTL. Those that came lately,
	// or have a longer TTL, ask for themselves.
	silent, now := isUnavailable(err), n.client.now()
	n.carryOut(p.queue.Fail(p.local, silent && !p.request.Late(), func(w *localqueue.Waiter) bool {
		a := w.Value.(*Call)
		switch {
		case errors.Is(err, store.ErrLost) && w != first, // it concerns this id alone
			silent && !a.Try && now-a.since < moment(a.Config.TTL/2),
			w.Place != p.local && a.Config.TTL > p.config.TTL:
			return false
		}
		return a.failing(err)
	}))
}
