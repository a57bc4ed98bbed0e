package conformance

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

func (m *model) expire(l *modelLock) {
	before := slices.Concat(l.holds, l.queue)
	n := len(before)
	l.holds = m.without(l.holds, func(e *modelEntry) bool {
		return m.dead(e.end) && !(m.is("shared holds never end") && e.Mode == store.Shared)
	})
	l.queue = m.without(l.queue, func(e *modelEntry) bool {
		if m.is("places last a millisecond longer") {
			return m.dead(e.end.Add(time.Millisecond))
		}
		return m.dead(e.end) && !m.is("dead waiters stay")
	})
	for _, e := range before {
		if !slices.Contains(l.holds, e) && !slices.Contains(l.queue, e) {
			l.dead = append(l.dead, e)
		}
	}
	if len(l.holds) == 0 && m.is("places end with the holds") && n > len(l.queue) {
		l.queue = nil
	}
	if len(l.holds) == 0 && m.is("burials end with the holds") && n > len(l.queue) {
		clear(l.buried)
	}
	if len(l.holds) == 0 && m.is("tokens start again after expiry") && n > 0 {
		m.last = 0
	}
	for id, end := range l.buried {
		if m.dead(end) && !m.is("buried for ever") {
			delete(l.buried, id)
		}
	}
	if n != len(l.holds)+len(l.queue) && !m.is("expiry does not promote") && !(m.is("an expiry beside a hold promotes nobody") && len(l.holds) > 0) {
		m.promote(l)
	}
}

// issue reserves tokens for e.
func (m *model) issue(e *modelEntry, promoted bool) uint64 {
	n := uint64(e.Tokens)
	if m.is("grants tell of more tokens than are reserved") || m.is("events tell of more tokens than are reserved") {
		n = uint64(max(1, e.Tokens/2))
	}
	if m.is("spans are ignored") || m.is("spans of promoted holds are ignored") && promoted {
		n = 1
	}
	first := m.last + 1
	m.last += n
	return first
}

// rule2 is the owner's side of the decision: entry is true if the owner holds.
func (m *model) rule2(l *modelLock, e *modelEntry) (entry, ok bool, token uint64) {
	var shared, exclusive uint64
	others := 0
	for _, h := range l.holds {
		switch {
		case !m.sameOwner(h.Owner, e.Owner):
			others++
		case h.Mode == store.Exclusive:
			exclusive = max(exclusive, h.token)
		case m.is("re-entry has the oldest token") && shared > 0:
		default:
			shared = max(shared, h.token)
		}
	}
	switch {
	case exclusive+shared == 0:
		return false, false, 0
	case exclusive > 0 && m.is("no read under a write") && e.Mode == store.Shared:
		return true, false, 0
	case exclusive > 0:
		return true, true, exclusive
	case e.Mode == store.Shared && m.is("re-entry waits behind writers") && len(l.queue) > 0:
		return false, false, 0
	case e.Mode == store.Shared:
		return true, true, shared
	case m.is("upgrade asks the queue") && len(l.queue) > 0:
		return true, false, 0
	case others > 0 && !m.is("upgrade beside readers"):
		return true, false, 0
	case m.is("upgrade keeps the token"):
		return true, true, shared
	}
	return true, true, 0
}

func (m *model) compatible(l *modelLock, e *modelEntry) bool {
	for _, h := range l.holds {
		if m.sameOwner(h.Owner, e.Owner) {
			continue
		}
		switch {
		case h.Mode == store.Shared && e.Mode == store.Shared && !(e.Queue && m.is("readers that may wait do")),
			h.Mode == store.Shared && m.is("writer beside readers"),
			e.Mode == store.Shared && m.is("readers beside a writer"),
			h.Mode == store.Exclusive && e.Mode == store.Exclusive && !e.Queue && m.is("impatient writers do not see a writer"):
		default:
			return false
		}
	}
	return true
}

// decide says whether e can be granted now; token 0 means a new one.
func (m *model) decide(l *modelLock, e *modelEntry) (ok bool, token uint64) {
	if entry, ok, token := m.rule2(l, e); entry {
		return ok, token
	}
	if !m.compatible(l, e) {
		return false, 0
	}
	for _, w := range l.queue {
		if m.sameID(w.ID, e.ID) {
			break
		}
		if m.is("an owner passes its own waiters") && m.sameOwner(w.Owner, e.Owner) {
			continue
		}
		if m.is("barging") || m.is("impatient requests barge") && !e.Queue || m.is("readers pass waiting writers") && e.Mode == store.Shared {
			continue
		}
		if w.Mode == store.Exclusive || e.Mode == store.Exclusive {
			return false, 0
		}
	}
	return true, 0
}

func (m *model) grant(l *modelLock, e *modelEntry, token uint64, promoted bool) {
	if token == 0 && m.is("readers share a token") && e.Mode == store.Shared && len(l.holds) > 0 {
		token = l.holds[0].token
	}
	e.short = 0
	if token == 0 || m.is("re-entry has a new token") {
		token = m.issue(e, promoted)
	} else if !m.is("re-entry tells of tokens that are not reserved") && !m.is("upgrade keeps the token") {
		e.short = e.Tokens - 1
	}
	l.queue = m.without(l.queue, func(w *modelEntry) bool { return m.sameID(w.ID, e.ID) })
	e.token, e.promoted = token, promoted
	if !promoted || !m.is("a promoted hold is as old as its place") {
		e.since = m.now()
	}
	switch {
	case promoted && m.is("promoted holds get their TTL"):
		e.end = m.now().Add(e.TTL)
	case promoted && m.is("promoted holds keep the deadline of their place"):
	case promoted:
		e.end = m.now().Add(e.WaitTTL)
	default:
		e.end = m.now().Add(e.TTL)
	}
	first := m.beside(l, e)
	if first != nil && first.end.Before(e.end) && m.is("a reader ends with the first") {
		e.end = first.end
	}
	if first != nil && promoted && first.end.Before(e.end) && m.is("promoted readers end with the last") {
		first.end = e.end
	}
	if outer := m.outer(l, e); outer != nil && m.is("a re-entry ends with the outer hold") {
		e.end = outer.end
	}
	if promoted && m.is("an event leaves before the commit") {
		m.mu.Unlock()
		m.send(modelEvent{e.via, store.Event{ID: e.ID, Token: e.token}})
		time.Sleep(time.Nanosecond)
		m.mu.Lock()
	}
	l.holds = append(l.holds, e)
	if promoted && !m.is("an event leaves before the commit") {
		m.tell(l, e)
	}
	if m.is("siblings wait") || m.is("siblings wait but for a release") && m.op != "Release" {
		return
	}
	for _, w := range slices.Clone(l.queue) {
		if !m.sameOwner(w.Owner, e.Owner) || m.find(l.queue, w.ID) == nil || m.is("siblings that died once wait") && m.find(l.dead, w.ID) != nil {
			continue
		}
		if entry, ok, token := m.rule2(l, w); entry && ok && !(token == 0 && m.is("sibling upgrades wait")) {
			m.grant(l, w, token, true)
			if m.is("siblings get their TTL") {
				w.end = m.now().Add(w.TTL)
			}
		}
	}
}

// beside is the first of the readers whom e joins, or nil.
func (m *model) beside(l *modelLock, e *modelEntry) *modelEntry {
	if e.Mode != store.Shared || len(l.holds) == 0 || l.holds[0].Owner == e.Owner {
		return nil
	}
	return l.holds[0]
}

// outer is the first hold of e's owner, or nil.
func (m *model) outer(l *modelLock, e *modelEntry) *modelEntry {
	for _, h := range l.holds {
		if h.Owner == e.Owner {
			return h
		}
	}
	return nil
}

func (m *model) tell(l *modelLock, e *modelEntry) {
	event := modelEvent{e.via, store.Event{ID: e.ID, Token: e.token, Short: e.short}}
	switch m.bug {
	case "no events":
		return
	case "events tell of more tokens than are reserved":
		event.event.Short = max(0, e.Tokens/2-1)
	case "events carry the last of the span":
		event.event.Token += uint64(e.Tokens) - 1
	case "events are sent twice":
		m.out = append(m.out, event)
	case "one event for readers together":
		if len(m.out) > 0 && e.Mode == store.Shared {
			return
		}
	case "everybody is woken":
		for _, w := range l.queue {
			m.out = append(m.out, modelEvent{w.via, store.Event{ID: w.ID, Token: e.token}})
		}
	case "zero event for each grant":
		m.out = append(m.out, modelEvent{to: e.via})
	}
	m.out = append(m.out, event)
}

func (m *model) promote(l *modelLock) {
	if m.is("promotion skips a live waiter") && len(l.queue) > 2 {
		l.queue = append([]*modelEntry{l.queue[1], l.queue[0]}, l.queue[2:]...)
	}
	for i := 0; i < len(l.queue); {
		w := l.queue[i]
		ok, token := m.decide(l, w)
		if m.is("promotion looks past the head") && i > 0 {
			ok = m.compatible(l, w)
		}
		if !ok {
			if m.is("promotion looks past the head") {
				i++
				continue
			}
			return
		}
		m.grant(l, w, token, true)
		i = 0
		if m.is("readers are promoted one at a time") {
			return
		}
	}
}

// heldBy is the label of a hold of another owner.
func (m *model) heldBy(l *modelLock, e *modelEntry) (label string, age time.Duration) {
	if m.is("a waiter is named as the holder") {
		return e.Label, 0
	}
	for _, h := range l.holds {
		switch {
		case h.Owner == e.Owner:
		case m.is("HeldFor is what remains"):
			return h.Label, h.end.Sub(m.now())
		default:
			return h.Label, m.age(h)
		}
	}
	return "", 0
}

// age is at least a nanosecond, as 0 says that it is not known.
func (m *model) age(e *modelEntry) time.Duration { return max(m.now().Sub(e.since), 1) }

func (m *model) retry(l *modelLock, e *modelEntry, position int) time.Duration {
	var wait time.Duration
	for _, h := range l.holds {
		left := h.end.Sub(m.now())
		if m.is("retry follows the first hold") && wait > 0 {
			left = min(wait, left)
			wait = 0
		}
		wait = max(wait, left)
	}
	switch m.bug {
	case "retry is zero":
		return 0
	case "retry is a whole lease":
		return e.TTL
	case "retry is not staggered":
		return wait
	}
	return wait + time.Duration(max(0, position-1))*time.Millisecond
}

// leave removes a hold or place and promotes.
func (m *model) leave(l *modelLock, id string, mayPromote bool) bool {
	hold, place := m.find(l.holds, id), m.find(l.queue, id)
	if hold == nil && (place == nil || m.is("release knows no places")) {
		return false
	}
	gone := func(e *modelEntry) bool { return m.sameID(e.ID, id) }
	if m.is("a repeat counts again") {
		first := true
		gone = func(e *modelEntry) bool {
			was := first && m.sameID(e.ID, id)
			first = first && !was
			return was
		}
	}
	l.holds, l.queue = m.without(l.holds, gone), m.without(l.queue, gone)
	if hold != nil && m.is("who stays gets the lease of who goes") {
		for _, e := range l.holds {
			e.end = hold.end
		}
	}
	// A downgrade leaves its owner with shared holds and no other.
	down := hold != nil && hold.Mode == store.Exclusive && len(l.holds) > 0 &&
		!slices.ContainsFunc(l.holds, func(e *modelEntry) bool { return e.Owner != hold.Owner || e.Mode == store.Exclusive })
	switch {
	case !mayPromote,
		m.is("a place given up promotes nobody") && hold == nil,
		m.is("a release promotes nobody") && hold != nil,
		m.is("a downgrade promotes nobody") && down:
		return true
	case m.is("a downgrade admits a writer") && down && len(l.queue) > 0:
		m.grant(l, l.queue[0], 0, true)
	}
	if m.is("a release frees every name") {
		for _, other := range m.locks {
			if other != l {
				other.holds = nil
			}
		}
	}
	before := len(m.out)
	m.promote(l)
	if m.is("events are lost on cancel") && hold == nil {
		m.out = m.out[:before]
	}
	return true
}
