package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

func (h *modelHandle) Acquire(ctx context.Context, req store.Request) (g store.Grant, err error) {
	m := h.model
	if m.is("owners belong to one handle") {
		req.Owner += fmt.Sprintf("%p", h)
	}
	if m.isForeign(req.Name) && !(m.is("foreign keys are waited for") && req.Queue) {
		if m.is("foreign keys look busy") && !req.Queue {
			return g, store.ErrHeld
		}
		return g, store.ErrForeignKey
	}
	var pause time.Duration
	if failed := h.on(ctx, "Acquire", req.Name, func(l *modelLock) { g, pause, err = h.acquire(l, req) }); failed != nil {
		return store.Grant{}, failed
	}
	time.Sleep(pause)
	return g, err
}

func (h *modelHandle) acquire(l *modelLock, req store.Request) (g store.Grant, pause time.Duration, err error) {
	m := h.model
	if m.is("WaitTTL is ignored") {
		req.WaitTTL = req.TTL
	}
	end := m.now().Add(req.TTL)
	if _, ok := l.buried[req.ID]; ok && (!m.is("buried ids queue") || !req.Queue) {
		return g, 0, store.ErrLost
	}
	if m.is("a burial covers its owner") && l.buried[req.Owner] != (time.Time{}) {
		return g, 0, store.ErrLost
	}
	if e := m.find(l.holds, req.ID); e != nil && !m.is("a repeat counts again") {
		if e.promoted && !req.Queue && m.is("a promoted hold is busy to an impatient ask") {
			return g, 0, store.ErrHeld
		}
		switch {
		case m.is("a repeat does not extend"), m.is("a promoted hold that asks is not extended") && e.promoted,
			m.is("a repeat does not extend a reader") && e.Mode == store.Shared:
		case end.After(e.end) || m.is("a repeat may shorten"):
			e.end = end
		}
		if m.is("a repeat has a new token") {
			e.token = m.issue(e, false)
		}
		g = m.held(l, e)
		if m.is("a repeat is answered as a re-entry") {
			_, _, g.Token = m.rule2(l, e)
			g.Token = max(g.Token, e.token)
		}
		return g, 0, nil
	}

	e := &modelEntry{Request: req, via: h}
	place := m.find(l.queue, req.ID)
	ok, token := m.decide(l, e)
	nested := false
	if req.Queue && m.is("re-entry that may wait does") {
		nested, _, _ = m.rule2(l, e)
		ok = ok && !nested
	}
	if m.is("not atomic: acquire") && ok {
		m.gap()
	}
	if ok {
		m.grant(l, e, token, false)
		return m.held(l, e), 0, nil
	}
	g.HeldBy, g.HeldFor = m.heldBy(l, e)
	if entry, _, _ := m.rule2(l, e); entry && !nested && !m.is("upgrade waits") {
		if !m.is("a refused upgrade keeps its place") && (req.Queue || !m.is("an impatient upgrade keeps its place")) {
			m.leave(l, req.ID, true)
		}
		if m.is("a refused upgrade is busy") {
			return g, 0, store.ErrHeld
		}
		return g, 0, store.ErrUpgrade
	}
	if req.Queue && m.is("not atomic: queue") {
		m.gap()
	}

	switch {
	case place != nil && !req.Queue:
		if m.is("an impatient ask gives up the place") {
			m.leave(l, req.ID, true)
		}
		if m.is("an impatient ask prolongs the place") {
			place.end = m.now().Add(req.WaitTTL)
		}
	case req.Queue && place != nil && m.is("asking again loses the place"):
		l.queue = append(m.without(l.queue, func(w *modelEntry) bool { return w == place }), place)
	case req.Queue && (place == nil || m.is("a repeat waits twice")):
		place = e
		place.since = m.now()
		place.end = m.now().Add(req.WaitTTL)
		if m.is("last in, first out") {
			l.queue = append([]*modelEntry{place}, l.queue...)
		} else {
			l.queue = append(l.queue, place)
		}
	case !req.Queue && m.is("a refusal takes a place"):
		e.end = m.now().Add(req.WaitTTL)
		l.queue = append(l.queue, e)
	}
	if req.Queue && !m.is("asking again does not prolong") {
		place.end = m.now().Add(req.WaitTTL)
	}
	if req.Queue && m.is("asking again makes a waiter younger") {
		place.since = m.now()
	}
	if place != nil && (req.Queue || m.is("any ask moves the wake-up")) && !m.is("the handle that asked first hears") {
		place.via = h
	}
	position := slices.Index(l.queue, place) + 1
	if m.is("the dead are counted") {
		position += len(l.dead)
	}
	g.Retry = m.retry(l, e, position)
	if m.is("Acquire waits") {
		pause = 15 * time.Second
	}
	if !req.Queue {
		if m.is("errors show ids") {
			return g, pause, fmt.Errorf("%s: %w", req.ID, store.ErrHeld)
		}
		return g, pause, store.ErrHeld
	}
	g.Token, g.Position = m.last, position
	if m.is("queued token is zero") {
		g.Token = 0
	}
	if m.is("positions count from zero") {
		g.Position--
	}
	return g, pause, nil
}

// gap lets others in, as a store does that decides and acts in two steps. In
// a bubble everybody else runs until they all wait, so it never fails to bite.
func (m *model) gap() {
	m.mu.Unlock()
	time.Sleep(time.Nanosecond)
	m.mu.Lock()
}

func (m *model) held(l *modelLock, e *modelEntry) store.Grant {
	g := store.Grant{Held: true, Token: e.token, Short: e.short, TTL: e.end.Sub(m.now())}
	for _, h := range l.holds {
		if m.sameOwner(h.Owner, e.Owner) {
			g.Holds++
		}
	}
	switch m.bug {
	case "holds counts all names":
		g.Holds = 0
		for _, other := range m.locks {
			for _, h := range other.holds {
				if h.Owner == e.Owner {
					g.Holds++
				}
			}
		}
	case "holds counts everybody":
		g.Holds = len(l.holds)
	case "Grant.TTL is what was asked for":
		g.TTL = e.TTL + time.Second
	case "grants tell of more tokens than are reserved":
		g.Short = max(0, e.Tokens/2-1)
	case "events tell of more tokens than are reserved":
		g.Short = e.Tokens - 1
	case "grants tell of less than one token":
		g.Short = e.Tokens
	}
	return g
}
