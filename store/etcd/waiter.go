package etcd

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/store"
)

// The pauses before a waiter whose request failed asks again.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// waiter is a request of this handle that has a place.
type waiter struct {
	*nameWatch
	r *record

	// Guarded by watches.mu.
	create int64           // of its place
	ahead  map[string]bool // the keys that have to go before it asks
	busy   bool            // it is asking
	looks  bool            // it looks before it tries to be granted
}

// wake has the waiter ask. One that is asking finds out by what the watch has told since. Callers have
// watches.mu.
func (w *waiter) wake(looks bool) {
	if !w.busy {
		w.busy, w.looks = w.ws.s.tasks.Go(w.ask), looks
	}
}

// ask asks until the waiter is granted, has to wait on, or waits no more.
func (w *waiter) ask() {
	s := w.ws.s
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		done, err := w.tryOnce(ctx)
		cancel()
		if done {
			return
		}
		if err == nil {
			pause = firstRetry / 2
			continue
		}
		over := !sleep(s.ctx, pause)
		w.ws.mu.Lock()
		if w.busy = !over && w.waiting[w.r.req.ID] == w; !w.busy {
			w.ws.mu.Unlock()
			return
		}
		w.ws.mu.Unlock()
	}
}

// tryOnce makes the hold if it can be made now. It reports false if the waiter has to ask again.
func (w *waiter) tryOnce(ctx context.Context) (done bool, err error) {
	s, r := w.ws.s, w.r
	e := newEntry(r.idKeys, r.req)
	w.ws.mu.Lock()
	told, looks := w.told, w.looks
	e.create = w.create
	w.ws.mu.Unlock()
	since := s.records.reads(r)
	l, err := s.records.leaseFor(ctx, r, placesFor(r.req.WaitTTL), r.req.WaitTTL/2) // else the hold could end before it is renewed
	if err != nil {
		return false, err
	}
	var h *entry
	var v *view
	var revision int64
	if looks || r.req.Mode == store.Shared { // readers that are granted together need a view
		v, err = s.look(ctx, w.dir)
	} else if revision, v, err = s.try(ctx, w.dir, r.next(e, l.id)); revision > 0 {
		h = e.becomes(e.first(), revision, 0, l.id)
	}
	if err == nil && h == nil {
		if h, _, v, err = s.advance(ctx, v, e, l.id); err == nil {
			revision = v.rev
		}
	}
	switch {
	case isLeaseGone(err):
		s.leases.check(ctx, l)
		return false, err
	case err != nil:
		return false, err
	case h == nil:
		return w.waitsOn(v, told), nil
	}
	w.granted(ctx, h, since, max(h.mod, revision))
	return true, nil
}

// granted notes a hold that the waiter has become, sees to it that it lasts WaitTTL, and tells of it. If that
// fails, the request is told to ask again.
func (w *waiter) granted(ctx context.Context, h *entry, since known, revision int64) {
	s, r := w.ws.s, w.r
	if !s.watches.leave(r) {
		return
	}
	event := store.Event{ID: h.id}
	if l := s.leases.have(h.lease); l != nil && s.leases.renew(ctx, l, r.req.WaitTTL) == nil {
		if !s.records.noteHold(r, since, h, revision, l, r.req.WaitTTL) {
			return
		}
		event.Token, event.Short = h.token, h.short()
	}
	s.sinks.Push(event)
}

// waitsOn has the waiter wait for what is in its way by a view. It reports false if it has to ask again, since
// keys have gone meanwhile.
func (w *waiter) waitsOn(v *view, told int64) bool {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	switch e := find(v.queue, w.r.req.ID); {
	case w.waiting[w.r.req.ID] != w:
	case v.rev < told: // the data is another, though the watch has not heard of it
		w.told = 0
		w.restart()
	case v.rev < w.told:
		w.looks = false
		return false
	case e == nil: // its place was lost with the data, perhaps
		w.ws.s.sinks.Push(store.Event{ID: w.r.req.ID})
	default:
		w.create, w.ahead = e.create, v.ahead(e)
	}
	w.busy = false
	return true
}
