package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// NotGranted is the error of a call that did not get the lock, with what is known of
// the holder in its way.
type NotGranted struct {
	Err       error
	HeldBy    string    // label of a holder; "" if it is not known
	HeldSince time.Time // when that hold was granted; zero if it is not known
	Own       bool      // this client has the hold, for another owner
}

// Error returns the text of the error that it wraps.
func (e *NotGranted) Error() string { return e.Err.Error() }

// Unwrap returns the error that it wraps.
func (e *NotGranted) Unwrap() error { return e.Err }

// over is why the call cannot go on: its context has ended, or the client closes. It
// runs a user's code, so no mutex is held.
func (a *Call) over() error {
	err := ended(a.ctx)
	a.cut = err != nil
	if err == nil && a.Client.isClosing.Load() {
		err = request.ErrClosed
	}
	return err
}

// warnSlow logs that the call waits for long. Once a call is enough: it says since when
// the holder has the lock.
func (a *Call) warnSlow() {
	a.warned = true
	c, waited := a.Client, time.Duration(a.Client.now()-a.since)
	sh := a.name.shard
	sh.mu.Lock()
	st, own := a.inTheWay()
	sh.mu.Unlock()
	attrs := []any{"name", a.Config.Name, "waited", waited, "held_by", st.HeldBy, "this_client", own}
	if !st.HeldSince.IsZero() {
		attrs = append(attrs, "held_for", time.Since(st.HeldSince))
	}
	if st.Trouble != nil {
		attrs = append(attrs, "error", st.Trouble.Error())
	}
	c.logs.add(func() { c.log.Warn("dlock: a lock call waits for long", attrs...) })
}

// inTheWay says how the request stands that the call relies on, or relied on last. If
// this client has a hold in the way it names that one. The shard is locked.
func (a *Call) inTheWay() (st request.Standing, own bool) {
	n := a.name
	if p := a.reliesOn(); p != nil {
		st = p.request.Standing()
	}
	if int(n.ownerHolds) == len(a.owner.holds) {
		return st, false
	}
	s := n.serving
	if s == nil || len(s.owners) == 0 { // another hold lasts longer than the last one
		return st, a.Mode == store.Exclusive
	}
	if s.mode() == store.Shared && a.Mode == store.Shared {
		return st, false
	}
	st.HeldBy, st.HeldSince = s.config.Label, a.Client.start.Add(time.Duration(s.began))
	return st, true
}

// reliesOn returns the place that asks for the front of the queue that the call stands
// in, or else the last one of its own. The shard is locked.
func (a *Call) reliesOn() *place {
	q := a.waiter.Place
	if a.waiter.State == localqueue.Waiting {
		q = a.name.queue.Front()
	}
	if q == nil {
		return a.asked
	}
	p, _ := q.Value.(*place) // none before it has an id
	return p
}

// explain is the error of a call that ends without the lock because of err. A call
// that its context ends says so beside the trouble that the store had.
func (a *Call) explain(err error, st request.Standing, own bool) error {
	err = request.WhichClosed(err)
	if a.cut && st.Trouble != nil {
		err = fmt.Errorf("%w: %w", err, request.Unavailable(st.Trouble))
	}
	held := a.cut || errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrUpgrade)
	if !held || st.HeldBy == "" && !own {
		return err
	}
	return &NotGranted{Err: err, HeldBy: st.HeldBy, HeldSince: st.HeldSince, Own: own}
}
