package core

import (
	"errors"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// refused ends the place with an error of the store. The shard is locked.
func (p *place) refused(err error) {
	p.dropped = true
	p.request.Abandon()
	// The store gives an id up whose place has expired, because the process stood still or
	// could not reach the store. With another id the call begins at the end of the queue.
	lost := errors.Is(err, store.ErrLost) && !errors.Is(err, request.ErrExpired)
	again := lost && p.again.times() < maxLostIDs && p.request.MayBePresent()
	if p.queue == nil {
		p.refusedDirectly(err, again)
		return
	}
	p.atRest()
	n := p.name
	first := n.queue.Follower(p.queue)
	if again && first != nil {
		first.Value.(*Call).again = p.afterLostID()
	}
	// A grant that came too late in the background is no fault of those that wait: they
	// ask for themselves. On the goroutine of a call it ends that call.
	late := errors.Is(err, request.ErrExpired) && p.queue.Phase == localqueue.Background
	if again || late {
		n.carryOut(n.queue.End(p.queue))
		return
	}
	// If the store was silent for a whole TTL the waiters behind the front fail too: the
	// next place would meet the same silence, for one more TTL. Those that came lately,
	// or have a longer TTL, ask for themselves.
	silent, now := isUnavailable(err), n.client.now()
	n.carryOut(n.queue.Fail(p.queue, silent && !p.request.Late(), func(w *localqueue.Waiter) bool {
		a := w.Value.(*Call)
		switch {
		case errors.Is(err, store.ErrLost) && w != first, // it concerns this id alone
			silent && now-a.since < moment(a.Config.TTL/2),
			w.Place != p.queue && a.Config.TTL > p.config.TTL:
			return false
		}
		return a.failing(err)
	}))
}

// refusedDirectly is refused for a call past the queue.
func (p *place) refusedDirectly(err error, again bool) {
	a := p.only
	switch {
	case !p.asksFor(a): // it has gone
	case again && !a.Try:
		a.again = p.afterLostID()
		p.askAgain(a)
	case p.strange(a.owner) && errors.Is(err, store.ErrHeld):
		p.askAgain(a)
	default:
		a.fail(err)
	}
}

// afterLostID is what the call keeps that goes on with another id.
func (p *place) afterLostID() *again {
	if p.name.client.now()-p.began > moment(p.config.TTL) {
		return &again{identity: p.identity, lost: 1}
	}
	return &again{identity: p.identity, lost: p.again.times() + 1}
}
