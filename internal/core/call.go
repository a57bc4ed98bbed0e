package core

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// Call is one lock call, and the memory of all that an uncontended lock needs: most
// calls need each part exactly once, and one object costs less than five. The price is
// that a hold keeps the memory of its call. The caller sets Client to Try and does not
// change them.
type Call struct {
	Client *Client
	Config *LockConfig
	Owner  Owner
	Handle *Handle
	Mode   store.Mode
	Try    bool // do not wait

	counted gauge
	checked bool // granted on this goroutine, which has just read the clock
	cut     bool // its context has ended
	warned  bool // its long wait was logged
	lost    int  // ids that the store gave up in a row

	ctx   context.Context
	name  *nameState
	owner *ownerState
	since moment // it asks or waits; written under the shard
	asked *place // the last place of its own; nil before the first

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
	a.ctx = ctx
	defer func() {
		a.ctx = nil // the hold, which lives in the call, may outlive it by far
		sh.calls.Done()
	}()
	if a.Client.isClosing.Load() {
		return request.ErrClosed
	}
	state, err := a.begin(sh, ended(ctx))
	// Each step takes the state that the last one has left. Other goroutines may have
	// changed it since, so a step that acts on it looks again under the shard's mutex.
	for err == nil {
		switch state {
		case localqueue.Direct: // its owner has the name by another call meanwhile
			if err = a.over(); err == nil {
				state, err = a.begin(sh, nil)
			}
		case localqueue.Asking:
			state, err = a.ask()
		case localqueue.Waiting, localqueue.Following:
			state, err = a.await()
		case localqueue.Granted:
			return a.deliver()
		default:
			err = a.err
		}
	}
	return a.leave(err)
}

// begin enters the name, and re-enters, joins other readers or queues. over is why ctx
// has ended, if it has: a re-entry into a lost hold says that first.
func (a *Call) begin(sh *shard, over error) (localqueue.State, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if a.name == nil {
		a.enter(sh)
	}
	n, o, w := a.name, a.owner, &a.waiter
	done, err := o.reenter(a.Mode, over, a.Handle)
	switch {
	case done:
		w.State, a.checked = localqueue.Granted, true
		o.refs-- // of the call: the handle has its own
		return w.State, nil
	case err == nil:
		err = over
	}
	if err != nil {
		return w.State, err
	}
	// An explicit owner and one that holds the name go past the queue: a nested call,
	// perhaps by way of another process, must not stand behind a stranger that waits for
	// its own caller to finish. So does a Try, which would wait there. A queue of its own
	// gives such a call the same states and functions as any other.
	past := !a.Owner.Private || len(o.holds) > 0
	switch {
	case !past && n.serving.mayJoin(a):
		n.serving.next()
		n.serving.serve(a)
		return w.State, nil
	case past || a.Try:
		a.queue = new(localqueue.Queue)
	default:
		a.queue = &n.queue
	}
	w.Mode, w.Kind, w.Value = a.Mode, &a.Config.kind, a
	a.queue.Join(w)
	if w.State != localqueue.Asking { // else the first request may end it without a wait
		a.since = a.Client.now()
	}
	o.waiters = append(o.waiters, a)
	return w.State, a.count(asks)
}

// enter counts one call of an owner in. The memory of the call serves for the owner's
// state, but not for the name's: that is shared with calls that may outlast this one,
// and would keep this call's memory for as long as the name is in use. The shard is
// locked.
func (a *Call) enter(sh *shard) {
	name, owner := a.Config.Name, a.Owner
	n := sh.names[name]
	if n == nil {
		if sh.names == nil {
			sh.names = make(map[string]*nameState)
		}
		n = &nameState{client: a.Client, shard: sh, name: name}
		sh.names[name] = n
	}
	o := n.find(owner)
	if o == nil {
		o = &a.ownerMemory
		o.name, o.owner = n, owner
		o.holds, o.waiters = o.sole.hold[:0], o.sole.waiter[:0]
		n.add(o)
	}
	o.refs++
	a.name, a.owner = n, o
}

// await blocks until the state of the waiter has changed.
func (a *Call) await() (localqueue.State, error) {
	if err := a.count(waits); err != nil {
		return a.state(), err
	}
	sh := a.name.shard
	sh.mu.Lock()
	state := a.waiter.State
	if state != localqueue.Waiting && state != localqueue.Following {
		sh.mu.Unlock()
		return state, nil
	}
	if a.ready == nil {
		// Made under the mutex under which the state was looked at, so no change is
		// missed. One element is enough: the call reads the state, not the channel.
		a.ready = make(chan struct{}, 1)
	}
	ready := a.ready
	sh.mu.Unlock()
	var slow <-chan time.Time
	if d := a.Client.config.SlowWait; d > 0 && !a.warned {
		timer := time.NewTimer(d - time.Duration(a.Client.now()-a.since))
		defer timer.Stop()
		slow = timer.C
	}
	for {
		select {
		case <-ready:
			return a.state(), nil
		case <-a.ctx.Done():
			return a.state(), a.over()
		case <-a.Client.closing:
			return a.state(), request.ErrClosed
		case <-slow:
			a.warnSlow()
		}
	}
}

// state is where the call stands now. Between two steps only what it is told changes
// that, so a stale state costs a look and no more.
func (a *Call) state() localqueue.State {
	sh := a.name.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return a.waiter.State
}

// wake has the call look at its state. It says nothing of what has changed: a second
// change before the call looks needs no second wake. The shard is locked.
func (a *Call) wake() {
	if a.ready == nil {
		return // it has not begun to wait, and looks before it does
	}
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// failing notes why the call fails, for Queue.Fail, which takes it out. The shard is
// locked.
func (a *Call) failing(err error) bool {
	a.err = err
	a.owner.forget(a)
	return true
}

// deliver ends a call that was granted. It looks at the clock last, so that a pause
// on the way ends in an error, and not in a hold that is over. Only a hold that MaxHold
// has ended is handed out all the same, as lost: see place.late. From then on the
// loss of the hold is told.
func (a *Call) deliver() error {
	a.uncount()
	if a.checked {
		return nil
	}
	h, sh := a.Handle, a.name.shard
	p := h.turn.place
	var fx effects
	sh.mu.Lock()
	h.delivered = h.err == ErrMaxHold || h.err == nil && !p.late()
	switch {
	case !h.delivered:
	case h.err != nil: // declared before the call had the hold, so not told
		fx.lost = append(fx.lost, h)
	case !p.lease.Valid():
		p.lose(&fx)
	}
	delivered := h.delivered
	sh.mu.Unlock()
	fx.run(a.Client)
	if delivered {
		return nil
	}
	if err := h.Unlock(); errors.Is(err, store.ErrClosed) {
		return request.ErrClosed
	}
	return request.ErrExpired
}

// leave ends a call that was not granted, or returns nil if it was in that moment.
func (a *Call) leave(err error) error {
	n := a.name
	n.shard.mu.Lock()
	if a.waiter.State == localqueue.Granted {
		n.shard.mu.Unlock()
		return a.deliver()
	}
	st, own := a.inTheWay() // before it leaves, as it parts from its place then
	if a.waiter.InQueue() {
		n.carryOut(a.queue.Leave(&a.waiter))
	}
	a.owner.forget(a)
	a.owner.leave()
	n.shard.mu.Unlock()
	a.uncount()
	return a.explain(err, st, own)
}
