package localqueue

import (
	"slices"

	"github.com/dlock-go/dlock/store"
)

// front returns the first waiter if it is a writer, or else the leading readers.
func (c *caller) front() []*Waiter {
	if len(c.line) > 0 && c.line[0].Mode == store.Exclusive {
		return c.line[:1]
	}
	n := slices.IndexFunc(c.line, func(w *Waiter) bool { return w.Mode == store.Exclusive })
	if n < 0 {
		n = len(c.line)
	}
	return c.line[:n]
}

// follower returns the first waiter that relies on p.
func (c *caller) follower(p *Place) *Waiter {
	for _, w := range c.line {
		if w.Place == p {
			return w
		}
	}
	return nil
}

// servable reports whether w, at the front, can take a hold of that kind.
func (c *caller) servable(w *Waiter, kind Kind) bool {
	return *w.Kind == kind && !kind.Alone && !(w.State == Asking && w.Place.Phase == Inline)
}

// note brings the list of live places up to date, and what was told about them.
func (c *caller) note() {
	for _, a := range c.actions {
		if a.Unwanted != nil {
			c.told[a.Unwanted] = true
		}
	}
	for _, w := range c.line {
		if w.Place != nil && !slices.Contains(c.live, w.Place) {
			c.live = append(c.live, w.Place)
		}
	}
	c.live = slices.DeleteFunc(c.live, func(p *Place) bool {
		if p.Phase == Gone {
			c.gone = p
		}
		if p.Wanted() {
			delete(c.told, p)
		}
		return p.Phase == Gone
	})
}

// checkActions checks that each call that waits was woken if it has to do something,
// and that each place without waiters was reported, and no other one.
func (c *caller) checkActions(e event, before []State) {
	woken := make(map[*Waiter]bool)
	for _, a := range c.actions {
		if w := a.Wake; w != nil {
			due := w.State == Asking || w.State == Failed || w.State == Granted && e.op == grant
			if !due || woken[w] {
				c.wrong("waiter %v was woken in state %v, or twice", w.Value, w.State)
			}
			woken[w] = true
		}
		if p := a.Unwanted; p != nil {
			if p.Wanted() || p.Phase == Unsent || p.Phase == Inline {
				c.wrong("a place was reported as unwanted in phase %d, wanted %v", p.Phase, p.Wanted())
			}
		}
	}
	for i, w := range c.waiters {
		joins := e.op == join && e.n == i
		if w.State != before[i] && (w.State == Asking || w.State == Failed) && !joins && !woken[w] {
			c.wrong("waiter %d went from %v to %v and was not woken", i, before[i], w.State)
		}
	}
	for _, p := range c.live {
		switch {
		case p.Wanted():
		case p.Phase != Background:
			c.wrong("a place in phase %d has no waiter", p.Phase)
		case !c.told[p]:
			c.wrong("a place in the background has no waiter and was not reported")
		}
	}
}

// checkFront checks that the waiters at the front have a place, and no others.
func (c *caller) checkFront() {
	front := c.front()
	for i, w := range c.line {
		at := w.State == Asking || w.State == Following
		switch {
		case i < len(front) && !at:
			c.wrong("waiter %v at the front is %v", w.Value, w.State)
		case i >= len(front) && (w.State != Waiting || w.Place != nil):
			c.wrong("waiter %v behind the front is %v", w.Value, w.State)
		}
	}
	for _, w := range c.waiters {
		in := w.State == Waiting || w.State == Asking || w.State == Following
		if in != slices.Contains(c.line, w) {
			c.wrong("waiter %v is %v, and in the queue is %v", w.Value, w.State, !in)
		}
	}
}

// checkPlaces checks that each waiter at the front has one place that is alive, that
// fits, and that its own call or another one asks for.
func (c *caller) checkPlaces() {
	counts, askers := make(map[*Place]int), make(map[*Place]int)
	for _, w := range c.front() {
		p := w.Place
		if p == nil {
			c.wrong("waiter %v at the front has no place", w.Value)
			return
		}
		counts[p]++
		if w.State == Asking {
			askers[p]++
		}
		switch {
		case p.Phase == Gone:
			c.wrong("waiter %v relies on a place that has gone", w.Value)
		case p.Mode != w.Mode || *p.Kind != *w.Kind:
			c.wrong("waiter %v relies on a place of another mode or kind", w.Value)
		case w.State != Asking && w.State != Following:
			c.wrong("waiter %v at the front is %v", w.Value, w.State)
		case w.Kind.Alone && counts[p] > 1:
			c.wrong("two waiters that stand alone share a place")
		}
	}
	for p := range counts {
		if want := map[bool]int{true: 0, false: 1}[p.Phase == Background]; askers[p] != want {
			c.wrong("a place in phase %d has %d askers at the front", p.Phase, askers[p])
		}
	}
	for _, p := range c.live {
		if p.relying != counts[p] {
			c.wrong("a place counts %d waiters, and has %d", p.relying, counts[p])
		}
	}
	c.checkShared()
}

// checkShared checks that waiters of one kind cost one request for each mode.
func (c *caller) checkShared() {
	for _, w := range c.waiters {
		if *w.Kind != *c.waiters[0].Kind || w.Kind.Alone {
			return
		}
	}
	var count [2]int
	for _, p := range c.live {
		if count[p.Mode]++; count[p.Mode] > 1 {
			c.wrong("waiters of one kind and mode have two places")
		}
	}
}

// checkAnswers checks what the queue says of itself.
func (c *caller) checkAnswers() {
	writer := func(w *Waiter) bool { return w.Mode == store.Exclusive }
	if got, want := c.q.ReaderMayJoin(), !slices.ContainsFunc(c.line, writer); got != want {
		c.wrong("ReaderMayJoin is %v, want %v", got, want)
	}
	for _, p := range append(slices.Clone(c.live), new(Place)) {
		if got, want := c.q.FirstOn(p), c.follower(p); got != want {
			c.wrong("FirstOn is %v, want %v", got, want)
		}
	}
	for _, kind := range kinds {
		var writers, got []*Waiter
		for _, w := range c.front() {
			if c.servable(w, kind) && writer(w) {
				writers = append(writers, w)
			}
		}
		if w := c.q.Servable(&kind); w != nil {
			got = append(got, w)
		}
		if !slices.Equal(got, writers) {
			c.wrong("Servable(%v) is %v, want %v", kind, got, writers)
		}
	}
}

// checkEmpty checks that an empty queue keeps nothing but places in the background.
func (c *caller) checkEmpty() {
	if (c.q.head == nil) != (len(c.line) == 0) {
		c.wrong("the queue begins with %v, and has %d waiters", c.q.head, len(c.line))
	}
	if len(c.line) > 0 {
		return
	}
	if c.q.head != nil || c.q.tail != nil || c.q.waiting != nil || c.q.front != 0 {
		c.wrong("an empty queue keeps a waiter")
	}
	for _, p := range c.q.keepers {
		if p != nil && p.Phase != Background {
			c.wrong("an empty queue keeps a place in phase %d", p.Phase)
		}
	}
	for _, w := range c.waiters {
		if w.prev != nil || w.next != nil {
			c.wrong("waiter %v keeps other waiters", w.Value)
		}
	}
}

// String is the name of the state, for the messages of these tests.
func (s State) String() string {
	return [...]string{"idle", "waiting", "following", "asking", "granted", "failed", "direct"}[s]
}
