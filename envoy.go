package dlock

import (
	"context"
	"errors"
	"time"
)

// envoy keeps the place at the store of a call that was served inside the
// process before its turn there came, or of a reader who has given up while others
// relied on him. The place belongs to the line: while there is an envoy, a writer at
// the front (or readers, if it is a reader's place) does not ask for himself, and
// what the store grants goes to whoever is the front then, or is given back. It is
// good for one tenure, and is given up when for a while nobody has come to want it.
type envoy struct {
	call    acquisition // of nobody: it only asks
	attempt *attempt
	local   *local
	cancel  context.CancelFunc
	gone    <-chan struct{} // closed when the place is, unless it was made use of

	// Guarded by the shard.
	wanted time.Time   // when the line last had a use for it
	idle   *time.Timer // until it is looked whether it is wanted
}

// newEnvoy is for the place of a ticket. The call of the ticket starts it.
func newEnvoy(t *ticket) *envoy {
	e := &envoy{attempt: t.attempt, local: t.party.local, gone: t.attempt.watch()}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.call = acquisition{client: t.attempt.client, ctx: ctx, terms: t.terms, mode: t.mode, wait: true, counts: true}
	return e
}

// takeOver goes on from where the call of the ticket ended: it has left its asking
// for a reason of its own, or it had an answer in the moment in which it was served.
func (e *envoy) takeOver(left bool, won award, err error) {
	switch {
	case !left:
		e.end(won, err)
	case !e.call.client.calls.spawn(e.run):
		e.end(award{}, ErrClosed)
	}
}

func (e *envoy) run() {
	sh := e.local.shard
	sh.mu.Lock()
	e.idle = time.AfterFunc(handoverWindow, e.check)
	sh.mu.Unlock()
	e.attempt.resume()
	won, err := e.call.ask(e.attempt)
	e.idle.Stop()
	e.end(won, err)
}

// check gives the place up if nobody wants it.
func (e *envoy) check() {
	calls := &e.call.client.calls
	if !calls.enter() {
		return
	}
	defer calls.exit()
	sh, l := e.local.shard, &e.local.line
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case l.envoy != e:
	case l.relies(), time.Since(e.wanted) < handoverWindow:
		e.idle.Reset(handoverWindow)
	default:
		l.dismiss()
	}
}

// awaitEnd waits until the place of a dismissed envoy is given back, or until
// deadline: then it goes on in the background.
func (e *envoy) awaitEnd(deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-e.gone:
	case <-timer.C:
	case <-e.call.client.calls.base.Done():
	}
}

// end gives what the store granted to the front of the line, and tells those who
// have to ask for themselves.
func (e *envoy) end(won award, err error) {
	defer e.cancel()
	c, sh, l := e.call.client, e.local.shard, &e.local.line
	c.pushes.remove(e.attempt)
	var n *tenure
	if err == nil {
		n = newTenure(sh, e.attempt, won)
	}
	sh.mu.Lock()
	served := false
	if l.envoy == e {
		relied := l.relies()
		l.envoy = nil
		if relied {
			served = n != nil && n.serveFront(e.local)
			l.uncover(e.concerns(err))
		}
		if errors.Is(err, ErrUnavailable) && !e.attempt.pace.late {
			l.despair(err, e.call.terms)
		}
	}
	if n != nil && !served {
		n.lease.Disarm()
	}
	sh.mu.Unlock()
	if !served {
		e.attempt.discard(err)
	}
}

// concerns returns err if it is one for those who relied on the envoy too: not that
// its grant came too late to be used, or that it was one waiter too many.
func (e *envoy) concerns(err error) error {
	if errors.Is(err, ErrLost) || errors.Is(err, ErrTooManyWaiters) {
		return nil
	}
	return err
}
