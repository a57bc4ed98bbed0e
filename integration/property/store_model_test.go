package property

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// model is what package store's documentation says a store does, written from
// that text and without a look at any store. It answers what the store must
// answer. What the contract leaves to the store, the numbers of tokens, it
// learns from the answers and checks for what is said about them.
type model struct {
	now   time.Time
	names map[string]*nameModel
	wakes []*claim // promoted by the current operation
}

// nameModel is one name. An entry is in holds or in queue, never in both.
type nameModel struct {
	holds, queue []*claim
	buried       map[string]time.Time
	issued       tokens
}

type claim struct {
	store.Request
	via   int    // the handle it was asked through
	token *token // of a hold; shared by all holds that re-entered one another
	until time.Time
}

// verdict is what an Acquire must answer.
type verdict struct {
	err      error
	held     *claim // granted
	holds    int
	position int           // queued
	retry    time.Duration // not granted: when the holds of others run out
}

func (m *model) name(name string) *nameModel {
	n := m.names[name]
	if n == nil {
		n = &nameModel{buried: make(map[string]time.Time)}
		m.names[name] = n
	}
	// "An entry whose deadline is not after the store's present is dead."
	dead := func(c *claim) bool { return !c.until.After(m.now) }
	n.holds = slices.DeleteFunc(n.holds, dead)
	n.queue = slices.DeleteFunc(n.queue, dead)
	for id, until := range n.buried {
		if !until.After(m.now) {
			delete(n.buried, id)
		}
	}
	m.promote(n)
	return n
}

func (m *model) acquire(req store.Request, via int) verdict {
	n := m.name(req.Name)
	defer m.promote(n)
	if _, ok := n.buried[req.ID]; ok {
		return verdict{err: store.ErrLost}
	}
	if c := of(n.holds, req.ID); c != nil { // 1. The id is a live hold.
		if until := m.now.Add(req.TTL); until.After(c.until) {
			c.until = until
		}
		return verdict{held: c, holds: n.count(c.Owner)}
	}
	c := of(n.queue, req.ID)
	if c == nil {
		c = &claim{Request: req, via: via}
	}
	if m.admit(n, c, slices.Index(n.queue, c)) {
		m.grant(n, c, m.now.Add(req.TTL))
		return verdict{held: c, holds: n.count(c.Owner)}
	}
	if n.count(req.Owner) > 0 { // 2. An upgrade never waits.
		n.remove(req.ID)
		return verdict{err: store.ErrUpgrade}
	}
	if req.Queue { // 4.
		if !slices.Contains(n.queue, c) {
			n.queue = append(n.queue, c)
		}
		c.until, c.via = m.now.Add(req.WaitTTL), via
	}
	v := verdict{position: slices.Index(n.queue, c) + 1}
	if !req.Queue {
		v.err = store.ErrHeld
	}
	for _, h := range n.holds {
		v.retry = max(v.retry, h.until.Sub(m.now))
	}
	return v
}

// admit decides rules 2 and 3 for c, which has place in the queue, or -1, and
// gives it its token.
func (m *model) admit(n *nameModel, c *claim, place int) bool {
	var own *token // the one that re-entry keeps
	exclusive, others, othersExclusive := false, false, false
	for _, h := range n.holds {
		switch {
		case h.Owner != c.Owner:
			others = true
			othersExclusive = othersExclusive || h.Mode == store.Exclusive
		case h.Mode == store.Exclusive && !exclusive:
			own, exclusive = h.token, true
		case (h.Mode == store.Exclusive) == exclusive:
			own = later(own, h.token)
		}
	}
	switch {
	case own == nil: // 3.
		if place < 0 {
			place = len(n.queue)
		}
		// "Live waiters directly ahead that are granted with it do not count":
		// those were promoted before c asked, so any that is left counts.
		if place > 0 || othersExclusive || others && c.Mode == store.Exclusive {
			return false
		}
	case exclusive || c.Mode == store.Shared:
		c.token = own
		return true
	case others:
		return false
	}
	c.token = n.issued.next(c.Tokens)
	return true
}

// grant makes c a hold, and those waiting requests of its owner that may
// re-enter now.
func (m *model) grant(n *nameModel, c *claim, until time.Time) {
	n.remove(c.ID)
	c.until = until
	n.holds = append(n.holds, c)
	for again := true; again; {
		again = false
		for i, w := range n.queue {
			if w.Owner == c.Owner && m.admit(n, w, i) {
				m.grantWaiting(n, w)
				again = true
				break
			}
		}
	}
}

func (m *model) grantWaiting(n *nameModel, w *claim) {
	m.wakes = append(m.wakes, w)
	m.grant(n, w, m.now.Add(w.WaitTTL))
}

func (m *model) promote(n *nameModel) {
	for len(n.queue) > 0 && m.admit(n, n.queue[0], 0) {
		m.grantWaiting(n, n.queue[0])
	}
}

func (m *model) renew(ref store.Ref) error {
	c := of(m.name(ref.Name).holds, ref.ID)
	if c == nil {
		return store.ErrLost
	}
	c.until = m.now.Add(ref.TTL)
	return nil
}

func (m *model) release(ref store.Ref) error {
	n := m.name(ref.Name)
	defer m.promote(n)
	if ref.Bury {
		n.buried[ref.ID] = m.now.Add(ref.TTL)
	}
	if !n.remove(ref.ID) {
		return store.ErrLost
	}
	return nil
}

func (m *model) breakAll(name string) int {
	n := m.name(name)
	defer m.promote(n)
	broken := len(n.holds)
	n.holds = nil
	return broken
}

func (n *nameModel) remove(id string) bool {
	same := func(c *claim) bool { return c.ID == id }
	there := slices.ContainsFunc(n.holds, same) || slices.ContainsFunc(n.queue, same)
	n.holds, n.queue = slices.DeleteFunc(n.holds, same), slices.DeleteFunc(n.queue, same)
	return there
}

func (n *nameModel) count(owner string) (holds int) {
	for _, h := range n.holds {
		if h.Owner == owner {
			holds++
		}
	}
	return holds
}

func of(list []*claim, id string) *claim {
	for _, c := range list {
		if c.ID == id {
			return c
		}
	}
	return nil
}
