package etcd

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/store"
)

// retryPause is the pause before a waiter whose request failed asks again.
const retryPause = 100 * time.Millisecond

// waiter is a request of this handle that has a place.
type waiter struct {
	*nameWatch
	r *record

	// Guarded by watches.mu.
	ahead map[string]bool // the keys that have to go before it asks
	busy  bool            // it is asking
	asked int64           // what the watch had told when it began to; 0: the watch is new, so it looks first
}

// wake has the waiter ask. One that is asking finds out by what the watch has told since. Callers have watches.mu.
func (w *waiter) wake() {
	if !w.busy {
		w.asked = w.told
		w.busy = w.ws.s.spawn(w.ask)
	}
}

// ask asks until the waiter is granted, has to wait on, or waits no more.
func (w *waiter) ask() {
	s := w.ws.s
	for {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		h, v, err := w.tryOnce(ctx)
		cancel()
		if h != nil || err != nil && !sleep(s.ctx, retryPause) {
			return
		}
		w.ws.mu.Lock()
		if w.busy = w.waits() && (err != nil || !w.waitsOn(v)); !w.busy {
			w.ws.mu.Unlock()
			return
		}
		w.asked = w.told
		w.ws.mu.Unlock()
	}
}

// waits reports whether the waiter is that of its id still. Callers have watches.mu.
func (w *waiter) waits() bool { return w.waiting[w.r.id] == w }

// tryOnce makes the hold if it can be made now, on the lease of its place, and tells of it. It returns the hold, or
// what there is.
func (w *waiter) tryOnce(ctx context.Context) (h *entry, v *view, err error) {
	s, r := w.ws.s, w.r
	a := &ask{
		s: s, idKeys: r.idKeys, req: r.req, r: r, since: s.records.read(r), began: time.Now(),
		kind: placesFor(r.req.WaitTTL), lasts: r.req.WaitTTL, atLeast: r.req.WaitTTL / 2, renews: true,
	}
	l, err := a.leaseForHold(ctx)
	if err != nil {
		return nil, nil, err
	}
	e := newEntry(r.idKeys, r.req)
	e.create, e.lease = max(a.since.create, 1), l.id
	var revision int64
	if r.req.Mode == store.Shared || w.asked == 0 { // a view has the readers that are granted together
		v, err = s.look(ctx, w.dir)
	} else if revision, v, err = s.try(ctx, w.dir, next(e)); revision > 0 {
		h = e.becomes(e.first(), revision, 0, l.id)
	}
	if err == nil {
		h, v, err = a.run(ctx, e, h, v)
	}
	if a.checkLeases(ctx, err); h == nil {
		return nil, v, err
	}
	// If it could not be noted, or might not last, the request is told to ask again.
	event := store.Event{ID: h.id}
	if err == nil {
		event.Token, event.Short = h.token, h.short(r.req.Tokens)
	}
	if s.watches.leave(r) {
		s.sinks.Push(event)
	}
	return h, nil, nil
}

// waitsOn has the waiter wait for what is in its way by a view. It reports false if it has to ask again, since
// keys have gone meanwhile. Callers have watches.mu.
func (w *waiter) waitsOn(v *view) bool {
	switch e := find(v.queue, w.r.id); {
	case v.rev < w.asked: // the data is another, though the watch has not heard of it
		w.told = 0
		w.restart()
	case v.rev < w.told:
		return false
	case e == nil: // its place was lost with the data, perhaps
		w.ws.s.sinks.Push(store.Event{ID: w.r.id})
	default:
		w.ahead = v.ahead(e)
	}
	return true
}
