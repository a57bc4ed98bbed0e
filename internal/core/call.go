package core

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// Call is one lock call, and the memory of all that an uncontended lock needs: most
// calls need each part exactly once, and one object costs less than five. The price is
// that a hold keeps the memory of its call. The caller sets Client to Known and does not
// change them.
type Call struct {
	Client *Client
	Config *LockConfig
	Owner  Owner
	Handle *Handle
	Mode   store.Mode
	Try    bool // do not wait
	Known  bool // the caller or its context has named the owner

	warned  bool   // its long wait was logged
	lostIDs int    // that the store gave up in a row
	counted *gauge // that counts it; nil: none

	name    *nameState
	owner   *ownerState
	since   time.Time // it waits, or tries. Written under the shard
	asked   *place    // the last place of its own; nil before the first
	sending *place    // whose request this goroutine sends or has not settled; nil: none

	identity *identity // to go on by after the store has given an id up; nil before

	// Guarded by the shard.
	queue  *localqueue.Queue // the name's, or one for this call alone: it goes past the name's
	waiter localqueue.Waiter
	ready  chan struct{} // told when waiter.State has changed; made when the call has to wait
	err    error         // if failed

	placeMemory place
	holdMemory  ownerHold
	ownerMemory ownerState
}

// Lock takes the lock, and returns nil when a.Handle holds it. Its errors are bare.
func (a *Call) Lock(ctx context.Context) error {
	sh := a.Client.shard(a.Config.Name)
	// Close waits for what a late grant leaves to do. The call counts itself before it
	// looks: Close marks first and waits then, so one of the two sees the other.
	sh.calls.Add()
	defer sh.calls.Done()
	if a.Client.isClosing.Load() {
		return request.ErrClosed
	}
	returned := false
	defer func() {
		if !returned { // a panic, or the end of the goroutine
			a.quit()
		}
	}()
	err := a.run(ctx, sh)
	returned = true
	return err
}

// run is Lock, once the call is counted.
func (a *Call) run(ctx context.Context, sh *shard) error {
	err := a.begin(sh, ended(ctx))
	// Other goroutines may change the state, so a step that acts on it looks again under
	// the shard's mutex.
	for err == nil {
		switch a.state() {
		case localqueue.Restarting: // its owner has the name by another call meanwhile, or has lost it
			if err = a.over(ctx); err == nil {
				err = a.begin(sh, nil)
			}
		case localqueue.Asking:
			err = a.ask(ctx)
		case localqueue.Waiting, localqueue.Following:
			err = a.await(ctx)
		case localqueue.Granted:
			return a.deliver()
		default:
			err = a.err
		}
	}
	return a.leave(ctx, err)
}

// begin enters the name, and re-enters, joins other readers or queues. over is why ctx
// has ended, if it has: a re-entry into a lost hold says that first, and ask fails with it.
func (a *Call) begin(sh *shard, over error) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if a.name == nil {
		a.enter(sh)
	}
	n, o, w := a.name, a.owner, &a.waiter
	done, err := o.reenter(a.Mode, over, a.Handle)
	switch {
	case err != nil:
		return err
	case done:
		w.State = localqueue.Granted
		o.refs-- // of the call: the handle has its own
		return nil
	}
	// An explicit owner and one that holds the name go past the queue: a nested call,
	// perhaps by way of another process, must not wait behind a call of another owner that
	// waits for its own caller. So does a Try, which would wait there. A queue of its own
	// gives such a call the same states and functions as any other.
	past := !a.Owner.Private() || len(o.holds) > 0
	newest := n.newest()
	switch {
	case over == nil && !past && newest.mayJoin(a):
		newest.next()
		newest.serve(a)
		return nil
	case past || a.Try:
		a.queue = new(localqueue.Queue)
	default:
		a.queue = &n.queue
	}
	w.Mode, w.Kind, w.Value = a.Mode, &a.Config.kind, a
	a.queue.Join(w)
	if a.since.IsZero() {
		a.since = time.Now()
	}
	o.waiters = append(o.waiters, a)
	return a.count(&a.Client.asking)
}

// ask sends a request for this call, which stands at the front of its queue. It does so
// on this goroutine if nobody in this process holds the name, and else in the
// background, since the lock may be handed over meanwhile.
func (a *Call) ask(ctx context.Context) error {
	if err := a.over(ctx); err != nil {
		return err
	}
	// The ids are drawn without the mutex: the kernel may take its time. The waiter may
	// be served by a local hand-over meanwhile.
	owner, id := request.NewIDs()
	n := a.name
	n.shard.mu.Lock()
	if a.waiter.State != localqueue.Asking { // it has been served, or begins again
		n.shard.mu.Unlock()
		return nil
	}
	if err := a.owner.mayAsk(); err != nil {
		n.shard.mu.Unlock()
		return err
	}
	inline := a.queue != &n.queue || len(n.granted) == 0
	p := a.newPlace(owner, id, inline)
	if !inline {
		a.follow(p)
	}
	n.shard.mu.Unlock()
	if !inline {
		p.request.Start(p.settle)
		return nil
	}
	a.sending = p
	if a.Try {
		// One that begins again has no more time than it had.
		return a.answered(ctx, p, p.request.Try(ctx, a.Client.closing, a.since.Add(a.Config.Timeout)))
	}
	return a.answered(ctx, p, p.request.Send(ctx))
}

// newPlace returns a place of this call for a request, which is sent inline or in the
// background. The ids are new. The shard is locked.
func (a *Call) newPlace(owner, id string, inline bool) *place {
	n, o, p := a.name, a.owner, &a.placeMemory
	if a.asked != nil {
		p = new(place) // the first may still be under way, or serve waiters behind
	}
	a.asked = p
	p.name, p.config, p.queue, p.local, p.lostIDs = n, a.Config, a.queue, a.waiter.Place, a.lostIDs
	p.local.Value = p
	if inline {
		p.local.Phase = localqueue.Inline
	}
	apart := a.queue != &n.queue
	switch {
	case apart: // the request is for this owner and no other
		p.identity = o.known(owner)
		if len(o.holds) > 0 {
			p.outer = o.holds[0]
		}
	case a.identity != nil: // once: the place may serve another owner before this call asks again
		p.identity, a.identity = a.identity, nil
	default:
		p.own.id, p.identity = owner, &p.own
	}
	// A span of tokens is for hand-overs that the store does not see. A writer that is
	// alone here has no waiter to pass the hold to. Under an identity that was asked for
	// before the grant may be a re-entry, and then the next tokens are another hold's.
	tokens := 1
	alone := a.Mode == store.Exclusive && inline && n.count() == 1
	if !apart && !alone && a.Config.shareable() && p.identity.requests == 0 {
		tokens += a.Config.Handoffs
	}
	p.identity.requests++
	p.request.Init(a.Client.sender, &a.Config.Config, store.Request{
		Name: a.Config.Name, ID: id, Owner: p.identity.id, Mode: a.Mode, Queue: !a.Try, Tokens: tokens,
	})
	if p.outer != nil {
		p.request.Nested()
	}
	return p
}

// answered goes on after a request on this goroutine. A queued request, and one whose
// outcome is unknown, go to the background: from there any waiter of the queue can be
// served, and the end of this call's context ends no other call's request.
func (a *Call) answered(ctx context.Context, p *place, answer request.Answer) error {
	if answer.Outcome == request.Granted || answer.Outcome == request.Refused {
		a.sending = nil
		p.settle(answer)
		return nil
	}
	err := a.over(ctx)
	a.sending = nil
	n := a.name
	n.shard.mu.Lock()
	// The call does not rely on the place any more if its owner has the lock by another
	// call of its own meanwhile: then the call re-enters.
	follows := err == nil && a.waiter.Place == p.local
	if follows {
		a.follow(p)
	}
	n.shard.mu.Unlock()
	if follows {
		p.request.Poll(answer, p.settle)
	} else {
		p.request.Abandon()
	}
	return err
}

// follow has the place, which the call was to ask for, go on in the background. The
// shard is locked.
func (a *Call) follow(p *place) {
	p.began = time.Now()
	a.queue.Detach(&a.waiter)
	a.name.background = append(a.name.background, p)
}

// state is where the call stands now. Between two steps only what it is told changes
// that, so a stale state costs a look and no more.
func (a *Call) state() localqueue.State {
	sh := a.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return a.waiter.State
}
