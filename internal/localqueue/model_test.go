package localqueue

import (
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/store"
)

// profile is the mode and kind of one waiter.
type profile struct {
	mode store.Mode
	kind Kind
}

var (
	kindA = Kind{TTL: 1, WaitTTL: 1}
	kindB = Kind{TTL: 2, WaitTTL: 1}
	alone = Kind{TTL: 1, WaitTTL: 1, Alone: true}
	kinds = []Kind{kindA, kindB, alone}

	profiles = []profile{
		{store.Exclusive, kindA}, {store.Shared, kindA},
		{store.Exclusive, kindB}, {store.Shared, kindB},
		{store.Exclusive, alone}, {store.Shared, alone},
	}
)

// op is what happens to a queue.
type op int

const (
	join           op = iota // waiter n joins
	sendInline               // waiter n sends its request itself
	sendBackground           // waiter n has its request sent in the background
	detach                   // the request of waiter n is queued at the store
	leave                    // the call of waiter n ends
	restart                  // the owner of waiter n gets the lock
	grant                    // place n is granted, for arg waiters at most
	fail                     // place n fails, in the way of failures[arg]
	discard                  // place n is given up
	handOver                 // a hold of kinds[n] is free for the writer at the front
)

type event struct {
	op     op
	n, arg int
}

var opNames = []string{
	"join", "sendInline", "sendBackground", "detach", "leave", "restart", "grant", "fail", "discard", "handOver",
}

func (e event) String() string { return fmt.Sprintf("%s %d %d", opNames[e.op], e.n, e.arg) }

// failure is one way in which a request ends without a grant.
type failure struct {
	end      bool // by End; else by Fail
	behind   bool
	concerns func(c *caller, w *Waiter, p *Place) bool
}

var failures = []failure{
	{end: true},
	{concerns: func(*caller, *Waiter, *Place) bool { return true }},
	{behind: true, concerns: func(*caller, *Waiter, *Place) bool { return true }},
	{concerns: func(c *caller, w *Waiter, p *Place) bool { return c.follower(p) == w }},
	{behind: true, concerns: func(c *caller, w *Waiter, _ *Place) bool { return slices.Index(c.waiters, w)%2 == 1 }},
}

// caller does to a queue what lock calls do. It knows from the contract alone which
// waiters are in the queue, and in which order.
type caller struct {
	q       Queue
	waiters []*Waiter
	joined  int
	line    []*Waiter // in the queue, in the order of Join
	live    []*Place  // not gone, in the order in which they appeared
	gone    *Place    // the last one that has gone, or one of long ago; its reply may come late
	told    map[*Place]bool
	err     error

	actions []Action // of the event under way
}

func newCaller(who []profile) *caller {
	c := &caller{told: make(map[*Place]bool), gone: &Place{Phase: Gone}}
	for i, p := range who {
		c.waiters = append(c.waiters, &Waiter{Mode: p.mode, Kind: &p.kind, Value: i})
	}
	return c
}

// place returns the place with that number. After the live ones it is the one that
// has gone last.
func (c *caller) place(n int) *Place {
	if n < len(c.live) {
		return c.live[n]
	}
	return c.gone
}

// events returns what can happen now.
func (c *caller) events() (list []event) {
	add := func(op op, n int, args ...int) {
		for _, arg := range args {
			list = append(list, event{op, n, arg})
		}
	}
	if c.joined < len(c.waiters) {
		add(join, c.joined, 0)
	}
	for i, w := range c.waiters {
		if !slices.Contains(c.line, w) {
			continue
		}
		add(leave, i, 0)
		add(restart, i, 0)
		switch {
		case w.State == Asking && w.Place.Phase == Unsent:
			add(sendInline, i, 0)
			add(sendBackground, i, 0)
		case w.State == Asking && w.Place.Phase == Inline:
			add(detach, i, 0)
		}
	}
	for i, p := range c.live {
		if p.Phase != Unsent {
			add(grant, i, 1, len(c.waiters))
			add(fail, i, 0, 1, 2, 3, 4)
		}
		if p.Phase == Background && !p.Wanted() {
			add(discard, i, 0)
		}
	}
	add(grant, len(c.live), 1)
	add(fail, len(c.live), 0, 2)
	for i, kind := range kinds {
		if slices.ContainsFunc(c.waiters, func(w *Waiter) bool { return *w.Kind == kind }) {
			add(handOver, i, 0)
		}
	}
	return list
}

// do has e happen, and returns what is wrong afterwards.
func (c *caller) do(e event) error {
	before := make([]State, len(c.waiters))
	for i, w := range c.waiters {
		before[i] = w.State
	}
	c.apply(e)
	c.checkActions(e, before)
	c.checkFront()
	c.checkPlaces()
	c.checkAnswers()
	c.checkEmpty()
	return c.err
}

// apply has e happen. It checks little.
func (c *caller) apply(e event) {
	c.actions, c.err = c.actions[:0], nil
	switch e.op {
	case join, leave, restart, sendInline, sendBackground, detach:
		c.applyToWaiter(e, c.waiters[e.n])
	case grant:
		c.grant(c.place(e.n), e.arg)
	case fail:
		c.fail(c.place(e.n), failures[e.arg])
	case discard:
		p := c.place(e.n)
		c.q.Forget(p)
		if p.Phase != Gone {
			c.wrong("a place that was discarded is in phase %d", p.Phase)
		}
	case handOver:
		c.handOver(kinds[e.n])
	}
	c.note()
}

func (c *caller) applyToWaiter(e event, w *Waiter) {
	switch e.op {
	case join:
		c.q.Join(w)
		c.line = append(c.line, w)
		c.joined++
	case leave:
		c.collect(c.q.Take(w, Idle))
		c.out(w, Idle)
	case restart:
		c.collect(c.q.Take(w, Restarting))
		c.out(w, Restarting)
	case sendInline:
		w.Place.Phase = Inline
	case sendBackground, detach:
		p := w.Place
		c.q.Detach(w)
		if w.State != Following || w.Place != p || p.Phase != Background {
			c.wrong("after Detach the asker is %v of a place in phase %d", w.State, p.Phase)
		}
	}
}

// grant serves the waiters that rely on p, up to most.
func (c *caller) grant(p *Place, most int) {
	c.q.Forget(p)
	for w := c.q.FirstOn(p); w != nil && most > 0; w = c.q.FirstOn(p) {
		c.serve(w)
		most--
	}
	c.collect(c.q.End(p))
	if p.Phase != Gone || p.Wanted() {
		c.wrong("a place that was granted is in phase %d, wanted %v", p.Phase, p.Wanted())
	}
}

func (c *caller) fail(p *Place, f failure) {
	if f.end {
		c.collect(c.q.End(p))
		return
	}
	concerned := make(map[*Waiter]bool)
	for _, w := range c.line {
		if w.Place == p || f.behind && w.State == Waiting {
			concerned[w] = f.concerns(c, w, p)
		}
	}
	c.collect(c.q.Fail(p, f.behind, func(w *Waiter) bool {
		if _, ok := concerned[w]; !ok {
			c.wrong("Fail asked about waiter %v", w.Value)
		}
		return concerned[w]
	}))
	for _, w := range slices.Clone(c.line) {
		if concerned[w] {
			c.out(w, Failed)
		}
	}
}

// serve serves w, before which no waiter may stand that it is not compatible with.
func (c *caller) serve(w *Waiter) {
	if !slices.Contains(c.front(), w) {
		c.wrong("waiter %v is served, and waiters before it are not", w.Value)
	}
	c.collect(c.q.Take(w, Granted))
	c.out(w, Granted)
}

func (c *caller) handOver(kind Kind) {
	if w := c.q.Servable(&kind); w != nil {
		if w.Mode != store.Exclusive || !c.servable(w, kind) {
			c.wrong("waiter %v cannot take a writer's hold of kind %v", w.Value, kind)
		}
		c.serve(w)
	}
}

// collect keeps actions, whose memory the queue reuses.
func (c *caller) collect(actions []Action) { c.actions = append(c.actions, actions...) }

// out notes that w has left the queue.
func (c *caller) out(w *Waiter, to State) {
	if w.State != to || w.Place != nil {
		c.wrong("waiter %v has left the queue in state %v, want %v", w.Value, w.State, to)
	}
	c.line = slices.DeleteFunc(c.line, func(x *Waiter) bool { return x == w })
}

func (c *caller) wrong(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}
