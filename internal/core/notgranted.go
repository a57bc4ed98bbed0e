package core

import (
	"errors"
	"fmt"
	"slices"
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
}

// Error returns the text of the error that it wraps.
func (e *NotGranted) Error() string { return e.Err.Error() }

// Unwrap returns the error that it wraps.
func (e *NotGranted) Unwrap() error { return e.Err }

// warnSlow logs that the call waits for long. Once a call is enough: it says since when
// the holder has the lock.
func (a *Call) warnSlow() {
	a.warned = true
	c, waited := a.Client, time.Since(a.since)
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
	c.warn("dlock: a lock call waits for long", attrs...)
}

// inTheWay says how the request stands that the call relies on, or relied on last. If
// this client has a hold in the way it names that one. The shard is locked.
func (a *Call) inTheWay() (st request.Standing, own bool) {
	n, p, q := a.name, a.asked, a.waiter.Place
	if a.waiter.State == localqueue.Waiting {
		q = n.queue.Front()
	}
	if q != nil {
		p, _ = q.Value.(*place) // none before it has an id
	}
	if p != nil {
		st = p.request.Standing()
	}
	for _, h := range slices.Backward(n.granted) {
		others := slices.ContainsFunc(h.owners, func(g *ownerHold) bool { return g.owner != a.owner })
		if others && (h.local.Mode == store.Exclusive || a.Mode == store.Exclusive) {
			st.HeldBy, st.HeldSince = h.config.Label, h.began
			return st, true
		}
	}
	return st, false
}

// explain is the error of a call that ends without the lock because of err. A call
// that its context has cut says so beside the trouble that the store had. If this client
// has the hold in its way, own, its holder may be the caller.
func (a *Call) explain(err error, cut bool, st request.Standing, own bool) error {
	err = request.WhichClosed(err)
	if cut && st.Trouble != nil {
		err = fmt.Errorf("%w: %w", err, request.Unavailable(st.Trouble))
	}
	held := cut || errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrUpgrade)
	if !held || st.HeldBy == "" && !own {
		return err
	}
	if own {
		hint := ", and the call had a context without its owner: a nested call needs the context of Do or Hold.Context"
		if a.Known {
			hint = " for another owner than the one of this call"
		}
		err = fmt.Errorf("%w (this client holds it%s)", err, hint)
	}
	return &NotGranted{Err: err, HeldBy: st.HeldBy, HeldSince: st.HeldSince}
}
