package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	saysClosed  = "Every call after Close gets ErrClosed. A Listen after Close hears nothing."
	saysMutex   = "The store calls no sink while it holds a lock of its own."
	saysCommit  = "An event leaves after its grant is certain to last. A store that commits sends it after the commit."
	saysRebury  = "Burying it again refuses it for at least ref.TTL from then, whatever is left of an earlier burial."
	saysSibling = "Each of them becomes a hold with deadline now+WaitTTL and gets its event, as a promoted waiter does."
)

// Cases about sentences that an author easily overlooks.
var contractCases = []testCase{
	{
		name: "calls after Close",
		says: saysClosed,
		run: func(h *harness) {
			a := h.exclusive("A")
			h.close(h.main)
			h.main.Listen(func(store.Event) { h.report("Listen after Close", "an event", "none") })()
			for _, c := range h.calls(a) {
				if err := c.call(h.ctx); !errors.Is(err, store.ErrClosed) && !errors.Is(err, store.ErrUnsupported) {
					h.fail(c.name+" after Close", describeError(err), "ErrClosed")
				}
			}
		},
	},
	{
		name: "sink that calls the store",
		says: saysMutex, needs: fair,
		run: func(h *harness) {
			h.whileASinkRuns("Inspect", func() { h.main.Inspect(h.ctx, h.name) })
		},
	},
	{
		name: "sink that listens and stops",
		says: saysMutex, needs: fair,
		run: func(h *harness) {
			h.whileASinkRuns("Listen and stop", func() { h.main.Listen(func(store.Event) {})() })
		},
	},
	{
		name: "event is of a grant",
		says: saysCommit, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			answers := make(chan string, 16)
			ask := w.req
			ask.Queue = false
			defer h.listen(h.main, func(e store.Event) {
				if e.ID != ask.ID || e.Token == 0 {
					return
				}
				go func() {
					defer h.recovered("case")
					g, err := h.main.Acquire(h.ctx, ask)
					if err != nil || !g.Held || g.Token != e.Token {
						answers <- describeGrant(g, err)
					} else {
						answers <- ""
					}
				}()
			})()
			a.release()
			h.wake(w)
			select {
			case got := <-answers:
				if got != "" {
					h.fail(describeRequest(ask)+" as soon as its event came", got, "held, with the token of the event")
				}
			case <-time.After(h.patience()):
				h.failf("an event at each sink", "none at a second sink")
			}
		},
	},
	{
		name: "handle that asked last hears",
		says: saysEvent, needs: fair | twoHandles,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			w.through(h.other).queue()
			a.release()
			h.wantHeardFrom(h.other, w)
		},
	},
	{
		name: "asking without Queue moves no wake-up",
		says: saysEvent, needs: fair | twoHandles | common,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			w.copy().through(h.other).impatient().refused(store.ErrHeld)
			a.release()
			h.wantHeardFrom(h.main, w)
		},
	},
	{
		name: "buried again",
		says: saysRebury,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl).waitTTL(h.ttl)
			a.buryAbsent()
			first := h.last
			h.before(first, h.ttl)
			a.buryAbsent()
			second := h.last
			h.setRelied(0)
			h.sleep(first.answered + h.ttl + h.lag - h.now())
			h.rely(second, h.ttl)
			a.refused(store.ErrLost)
		},
	},
	{
		name: "sibling lasts a WaitTTL",
		says: saysSibling, needs: fair,
		run: func(h *harness) {
			a, w, w2 := h.exclusive("A"), h.exclusive("W"), h.exclusive("W").waitTTL(h.ttl)
			a.hold()
			w.queue()
			w2.queue()
			a.release()
			h.wake(w)
			h.await(w2.req.ID, 0, h.ttl) // a store that confirms what it pushes counts from then
			h.after(callTime{answered: h.now()}, h.ttl)
			h.wantHolders(w)
			w2.renewLost()
		},
	},
}

// whileASinkRuns wants a call to be answered before the sink that made it returns.
func (h *harness) whileASinkRuns(call string, do func()) {
	a, w := h.exclusive("A"), h.exclusive("W")
	a.hold()
	w.queue()
	answered := make(chan bool, 16)
	defer h.listen(h.main, func(store.Event) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer h.recovered("case")
			do()
		}()
		answered <- h.endsSoon(done)
	})()
	a.release()
	h.wake(w)
	select {
	case ok := <-answered:
		if !ok {
			h.fail(call+" while a sink runs", "no answer until the sink has returned", "an answer: no lock of the store is held")
		}
	case <-time.After(h.patience()):
		h.failf("an event at each sink", "none at a second sink")
	}
}

// namedCall is a call of the store that a case makes.
type namedCall struct {
	name string
	call storeCall
}

// calls is each call of the store once, on the hold c.
func (h *harness) calls(c *claim) []namedCall {
	list := []namedCall{
		{"Acquire", func(ctx context.Context) error { _, err := h.main.Acquire(ctx, h.exclusive("A").req); return err }},
		{"Renew", func(ctx context.Context) error { return errors.Join(h.renewWith(ctx, c.ref())...) }},
		{"Release", func(ctx context.Context) error { return h.main.Release(ctx, c.ref()) }},
		{"Inspect", func(ctx context.Context) error { _, err := h.main.Inspect(ctx, h.name); return err }},
	}
	return append(list, h.abilityCalls(c, h.exclusive("A"))...)
}

// abilityCalls is each call of an optional ability that the store has: on the hold c, and a vote for other.
func (h *harness) abilityCalls(c, other *claim) (list []namedCall) {
	if s, ok := h.main.(store.Breaker); ok {
		list = append(list, namedCall{"Break", func(ctx context.Context) error { _, err := s.Break(ctx, h.name); return err }})
	}
	if s, ok := h.main.(store.Lister); ok {
		list = append(list, namedCall{"List", func(ctx context.Context) error { _, err := s.List(ctx); return err }})
	}
	if s, ok := h.main.(store.TokenRaiser); ok {
		list = append(list, namedCall{"RaiseToken", func(ctx context.Context) error { _, err := s.RaiseToken(ctx, c.ref(), 1, 1); return err }})
	}
	if s, ok := h.main.(store.Incarnator); ok {
		list = append(list, namedCall{"Incarnation", func(ctx context.Context) error { _, _, err := s.Incarnation(ctx); return err }})
	}
	if s, ok := h.main.(store.Voter); ok {
		list = append(list, namedCall{"Vote", func(ctx context.Context) error { _, err := s.Vote(ctx, other.req, 0); return err }})
	}
	return list
}

// wantHeardFrom wants an event of a claim through this handle. Others may hear it too.
func (h *harness) wantHeardFrom(s store.Store, c *claim) {
	for known := 0; ; known++ {
		e, ok := h.await(c.req.ID, known, h.patience())
		if !ok {
			h.failf("an event at the handle that last asked with Queue", "none for %v within %v", c, h.patience())
		}
		if e.via == s {
			return
		}
	}
}

// renewWith is Renew of one hold, which wants one result.
func (h *harness) renewWith(ctx context.Context, ref store.Ref) []error {
	errs := h.main.Renew(ctx, []store.Ref{ref})
	if len(errs) != 1 {
		h.fail("Renew(1 hold)", fmt.Sprintf("%d results", len(errs)), "one result")
	}
	return errs
}

// endsSoon says whether done is closed while the caller waits. In a bubble it
// yields instead of waiting: a goroutine that waits for a mutex stops its clock.
func (h *harness) endsSoon(done <-chan struct{}) bool {
	if !h.Bubble {
		select {
		case <-done:
			return true
		case <-time.After(max(h.ttl, time.Second)):
			return false
		}
	}
	for range 5_000_000 {
		select {
		case <-done:
			return true
		default:
			runtime.Gosched()
		}
	}
	return false
}
