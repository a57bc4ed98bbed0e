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
	Err    error
	HeldBy string // label of a holder; "" if it is not known
	Own    bool   // this client has the hold, for another owner
}

// Error returns the text of the error that it wraps.
func (e *NotGranted) Error() string { return e.Err.Error() }

// Unwrap returns the error that it wraps.
func (e *NotGranted) Unwrap() error { return e.Err }

// over is why the context of the call has ended, if it has. It runs a user's code, so
// no mutex is held.
func (a *Call) over() error {
	err := ended(a.ctx)
	a.cut = err != nil
	return err
}

// answered is an error with what the answer to a request has said beside it. It does
// not leave the core.
type answered struct {
	error
	request.Standing
}

func (e *answered) Unwrap() error { return e.error }

func withStanding(err error, answer request.Answer) error {
	e := &answered{error: err}
	e.HeldBy = answer.HeldBy
	if answer.Outcome == request.Unknown {
		e.Trouble = answer.Err
	}
	if err == nil || e.HeldBy == "" && e.Trouble == nil {
		return err
	}
	return e
}

// warnSlow logs that the call waits for long.
func (a *Call) warnSlow() {
	a.warned = true
	c, waited := a.Client, time.Duration(a.Client.now()-a.since)
	sh := a.name.shard
	sh.mu.Lock()
	var st request.Standing
	if p := a.reliesOn(); p != nil {
		st = p.request.Standing()
	}
	st, own := a.inTheWay(st)
	sh.mu.Unlock()
	attrs := []any{"name", a.Config.Name, "waited", waited, "held_by", st.HeldBy, "this_client", own}
	if st.Trouble != nil {
		attrs = append(attrs, "error", st.Trouble.Error())
	}
	c.logs.add(func() { c.log.Warn("dlock: a lock call waits for long", attrs...) })
}

// blame says how the request stands that a failing call relied on, and whether this
// client has a hold in the way. The shard is locked.
func (a *Call) blame(err error) (st request.Standing, own bool) {
	if said, ok := err.(*answered); ok {
		st = said.Standing
	} else if p := a.reliesOn(); p != nil && a.cut {
		st = p.request.Standing()
	}
	return a.inTheWay(st)
}

// inTheWay reports whether this client has a hold in the way of the call, and then
// names that one. The shard is locked.
func (a *Call) inTheWay(st request.Standing) (_ request.Standing, own bool) {
	n := a.name
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
	st.HeldBy = s.place.config.Label
	return st, true
}

// reliesOn returns the place that asks for the call, or for the front of the queue
// that the call stands in. The shard is locked.
func (a *Call) reliesOn() *place {
	if a.direct != nil {
		return a.direct
	}
	q := a.waiter.Place
	if a.waiter.State == localqueue.Waiting {
		q = a.name.queue.Front()
	}
	if q == nil {
		return nil
	}
	p, _ := q.Value.(*place) // none before it has an id
	return p
}

// explain is the error of a call that ends without the lock because of err. A call
// that its context ends says so beside the trouble that the store had.
func (a *Call) explain(err error, st request.Standing, own bool) error {
	if said, ok := err.(*answered); ok {
		err = said.error
	}
	err = request.WhichClosed(err)
	if a.cut && st.Trouble != nil {
		err = fmt.Errorf("%w: %w", err, request.Unavailable(st.Trouble))
	}
	held := a.cut || errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrUpgrade)
	if !held || st.HeldBy == "" && !own {
		return err
	}
	return &NotGranted{Err: err, HeldBy: st.HeldBy, Own: own}
}
