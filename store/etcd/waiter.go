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
	n *nameWatch
	r *record

	// Guarded by watches.mu.
	create int64           // of its place
	ahead  map[string]bool // the keys that have to go before it asks
	busy   bool            // it is asking
	again  bool            // something went while it was asking
}

// wake has the waiter ask. Callers have watches.mu.
func (w *waiter) wake() {
	if w.busy {
		w.again = true
		return
	}
	w.busy, w.again = true, false
	if !w.n.ws.s.tasks.Go(w.ask) {
		w.busy = false
	}
}

// ask asks until the waiter is granted, has to wait on, or waits no more.
func (w *waiter) ask() {
	pause := firstRetry
	for {
		told := w.begin()
		_, since := w.n.ws.s.records.reads(w.r)
		ctx, cancel := context.WithTimeout(w.n.ws.s.ctx, callTimeout)
		h, v, err := w.try(ctx)
		if err == nil && h != nil {
			w.granted(ctx, h, since, max(h.mod, revisionOf(v)))
			cancel()
			return
		}
		cancel()
		if err == nil {
			if w.waitsOn(v, told) {
				return
			}
			continue
		}
		if !sleep(w.n.ws.s.ctx, pause) || !w.wanted() {
			return
		}
		pause = min(2*pause, lastRetry)
	}
}

func revisionOf(v *view) int64 {
	if v == nil {
		return 0
	}
	return v.rev
}

// begin notes what the watch has told by now.
func (w *waiter) begin() (told int64) {
	w.n.ws.mu.Lock()
	defer w.n.ws.mu.Unlock()
	w.again = false
	return w.n.told
}

// try makes the hold if it can be made, at first without knowing what there is.
func (w *waiter) try(ctx context.Context) (h *entry, v *view, err error) {
	s, r := w.n.ws.s, w.r
	w.n.ws.mu.Lock()
	create := w.create
	w.n.ws.mu.Unlock()
	l, err := s.leaseFor(ctx, r, placesFor(r.req.WaitTTL), 0)
	if err != nil {
		return nil, nil, err
	}
	e := newEntry(r.keys, r.req)
	e.create = create
	revision, v, err := s.try(ctx, w.n.dir, r.keys.next(e, l.id))
	if revision > 0 {
		return e.becomes(revision, 0, l.id), nil, nil
	}
	if err == nil {
		h, _, v, err = s.advance(ctx, v, e, l.id)
	}
	if isLeaseGone(err) {
		s.leases.drop(l)
	}
	return h, v, err
}

// granted notes a hold that the waiter has become, sees to it that it lasts WaitTTL, and
// tells of it. If that fails, the request asks again and is told then.
func (w *waiter) granted(ctx context.Context, h *entry, since int, revision int64) {
	s, r := w.n.ws.s, w.r
	if !s.watches.granted(r, h.create) {
		return
	}
	l := s.leases.have(h.lease)
	if l == nil || s.renewLease(ctx, l, r.req.WaitTTL) != nil {
		s.sinks.Push(store.Event{ID: h.id})
		return
	}
	if s.records.noteHold(r, since, h, revision, l, r.req.WaitTTL) {
		s.sinks.Push(store.Event{ID: h.id, Token: h.token})
	}
}

// waitsOn has the waiter wait for what is in its way by a view. It reports false if it has
// to ask again, since keys have gone meanwhile.
func (w *waiter) waitsOn(v *view, told int64) bool {
	s := w.n.ws.s
	e := find(v.queue, w.r.req.ID)
	w.n.ws.mu.Lock()
	defer w.n.ws.mu.Unlock()
	switch {
	case w.n.waiting[w.r.req.ID] != w:
		w.busy = false
		w.n.gone(w.r.keys.hold)
		return true
	case v.rev < told: // the data is another, though the watch has not heard of it
		w.n.restart()
		w.n.told = 0
	case w.again || v.rev < w.n.told:
		return false
	}
	w.busy = false
	if e == nil {
		w.n.gone(w.r.keys.hold)
		s.sinks.Push(store.Event{ID: w.r.req.ID})
		return true
	}
	w.create, w.ahead = e.create, v.ahead(e)
	return true
}

// wanted reports whether the waiter still waits.
func (w *waiter) wanted() bool {
	w.n.ws.mu.Lock()
	defer w.n.ws.mu.Unlock()
	if w.n.waiting[w.r.req.ID] == w {
		return true
	}
	w.busy = false
	return false
}
