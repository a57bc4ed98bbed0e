package property

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// settle lets everything happen that happens at this moment, takes note of the
// calls that returned, and checks what must be true at any moment.
func (w *world) settle(t *rapid.T) {
	w.settleWith(t, func(*pending, reply) bool { return false })
}

// settleWith lets judged take over the judgement of calls that it can predict.
func (w *world) settleWith(t *rapid.T, judged func(*pending, reply) bool) {
	synctest.Wait()
	w.observeEnds(t)
	w.gaveUp = nil
	for _, p := range slices.Clone(w.waiting) {
		select {
		case r := <-p.reply:
			w.waiting = slices.DeleteFunc(w.waiting, func(q *pending) bool { return q == p })
			p.cancel()
			if r.err != nil {
				w.gaveUp = append(w.gaveUp, p)
			}
			t.Logf("          %v returned %v after %v", p, r.err, r.at.Sub(p.from))
			if !judged(p, r) {
				w.judge(t, p, r, true)
			}
		default:
		}
	}
	w.welcome(t)
	w.observeEnds(t)
	w.checkExclusion(t)
	w.checkHandles(t)
	if w.quiet() {
		w.checkStore(t)
	}
}

func (w *world) isWaiting(p *pending) bool { return slices.Contains(w.waiting, p) }

// nestsIn reports whether a call has a grant of its party and mode, with that
// token, to nest in. There may be several when calls of one owner waited beside
// each other, and which of them is the first depends on who came to run.
func (w *world) nestsIn(p *pending, token uint64) bool {
	return slices.ContainsFunc(w.handles, func(h *handle) bool {
		return h.party == p.party && h.state == held && h.mode == p.mode && h.token == token
	})
}

// compare requires the predicted outcome.
func (w *world) compare(t *rapid.T, verb string, p *pending, r reply, want outcome) {
	t.Helper()
	if !sameAnswer(r.err, want.err) {
		t.Fatalf("%s %v: %v, want %+v; %s", verb, p, r.err, want, w.situation())
	}
	if r.err == nil && want.token != 0 && r.hold.Token() != want.token && !(want.nests && w.nestsIn(p, r.hold.Token())) {
		t.Fatalf("%s %v: token %d, want %d", verb, p, r.hold.Token(), want.token)
	}
	if r.err == nil && want.token == 0 && r.hold.Token() <= w.newest[p.name] {
		t.Fatalf("%s %v: token %d of a new grant, but %d was before it", verb, p, r.hold.Token(), w.newest[p.name])
	}
	if want.nests && r.at != p.from {
		t.Fatalf("%s %v: re-entry took %v", verb, p, r.at.Sub(p.from))
	}
}

// judge checks that a call had a reason to end as it did, for those that cannot
// be predicted: they waited, or a link failed.
func (w *world) judge(t *rapid.T, p *pending, r reply, waits bool) {
	t.Helper()
	// Whether anything can have gone wrong while it was under way.
	calm, err := w.quietSince(p.from), r.err
	may := false
	switch {
	case err == nil:
		return // welcome looks at it
	case errors.Is(err, context.DeadlineExceeded):
		may = !p.until.IsZero() && r.at.Equal(p.until)
	case errors.Is(err, context.Canceled):
		may = p.canceled
	case errors.Is(err, dlock.ErrClosed):
		may = p.client.closed
	case errors.Is(err, dlock.ErrHeld):
		may = !waits && !calm
	case errors.Is(err, dlock.ErrUnavailable):
		// Nothing confirmed for a whole TTL, or for the time a try has.
		may = !calm && (!waits || r.at.Sub(p.from) >= leaseTTL/2)
	case errors.Is(err, dlock.ErrUpgrade):
		// Or its owner holds without knowing: the reply is still to come.
		may = p.mode == store.Exclusive && (!calm || w.everHeld(p, store.Shared))
	case errors.Is(err, dlock.ErrLost):
		may = !calm || w.everLost(p)
	}
	if !may {
		t.Fatalf("%v returned %v after %v without a reason; %s", p, err, r.at.Sub(p.from), w.situation())
	}
}

func (w *world) everHeld(p *pending, mode store.Mode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(w.handles, w.arrived), func(h *handle) bool {
		return h.who == p.who && h.name == p.name && h.mode == mode
	})
}

func (w *world) everLost(p *pending) bool {
	return slices.ContainsFunc(w.handles, func(h *handle) bool { return h.party == p.party && h.state == lost })
}

// welcome takes the handles of calls that returned into the model, with a look
// at their tokens: whoever comes after a claim that it excludes has a greater
// one. (Not so after any claim: two readers are told of their grants in any
// order, and so is an owner of two grants of its own.)
func (w *world) welcome(t *rapid.T) {
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	for _, h := range arrived {
		for _, o := range w.handles {
			if o.token == h.token && (o.who != h.who || o.name != h.name) {
				t.Fatalf("%v has the token of %v", h, o)
			}
			if o.name == h.name && o.token > h.token && conflict(o.who, o.mode, h.who, h.mode) && !w.broken[h.token] {
				t.Fatalf("%v comes after %v", h, o)
			}
			if o.party == h.party && o.token == h.token && o.mode == h.mode && o.state == held {
				h.since = earliest(h.since, o.since)
			}
		}
		w.newest[h.name] = max(w.newest[h.name], h.token)
		w.handles = append(w.handles, h)
	}
	for _, h := range arrived {
		w.checkOrder(t, h)
	}
}

// observeEnds compares each hold's own word with the moment at which it ends by
// what its client has been told.
func (w *world) observeEnds(t *rapid.T) {
	now := time.Now()
	for _, h := range w.handles {
		if h.state != held {
			continue
		}
		err, ids := h.Err(), h.client.link.of(h.token, h.mode)
		if len(ids) == 0 {
			t.Fatalf("%v: its client was never told so", h)
		}
		live, over := true, true // certainly
		for _, k := range ids {
			first, last := k.first, k.last
			if limit := w.terms[h.name].maxHold; limit > 0 {
				first = earliest(first, h.since.Add(limit))
				if len(ids) == 1 {
					last = earliest(last, h.since.Add(limit))
				} else { // which grant it is of, nobody can tell
					last = earliest(last, h.at.Add(limit))
				}
			}
			live = live && now.Before(first) && !k.gone && !k.missing
			over = over && (k.gone || !now.Before(last))
		}
		switch {
		case err == nil && over:
			t.Fatalf("%v is not over, but its client was told no more than %+v", h, ids)
		case err != nil && live:
			t.Fatalf("%v is over (%v), but its client was told %+v", h, err, ids)
		case err != nil && !errors.Is(err, dlock.ErrLost):
			t.Fatalf("%v ended with %v", h, err)
		case err != nil:
			h.state = lost
			w.checkReason(t, h, ids[len(ids)-1])
		}
	}
}

// checkReason: in fair weather nothing is lost but what was broken or ends by
// its own terms.
func (w *world) checkReason(t *rapid.T, h *handle, k told) {
	terms := w.terms[h.name]
	if w.broken[h.token] || terms.fixed || terms.maxHold > 0 {
		return
	}
	// It ended when the first unconfirmed renewal was a lease ago, at most.
	if !h.client.link.troubled(earliest(time.Now(), k.last).Add(-leaseTTL - w.timeout())) {
		t.Fatalf("%v: lost without a reason", h)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// checkExclusion: no two live handles of different owners conflict.
func (w *world) checkExclusion(t *rapid.T) {
	for i, a := range w.handles {
		if a.state != held || w.broken[a.token] {
			continue
		}
		for _, b := range w.handles[:i] {
			if b.state == held && b.name == a.name && !w.broken[b.token] && conflict(a.who, a.mode, b.who, b.mode) {
				t.Fatalf("both are held:\n %v\n %v", a, b)
			}
		}
	}
}

// checkHandles: what a handle says of itself fits together.
func (w *world) checkHandles(t *rapid.T) {
	for _, h := range w.handles {
		want := map[state]error{lost: dlock.ErrLost, closed: dlock.ErrClosed}[h.state]
		if err := h.Err(); h.state != unlocked && !sameAnswer(err, want) {
			t.Fatalf("%v: Err() is %v", h, err)
		} else if h.state == unlocked && err == nil {
			t.Fatalf("%v: Err() is nil", h)
		}
		select {
		case <-h.Done():
			if h.state == held {
				t.Fatalf("%v: Done is closed", h)
			}
		default:
			if h.state != held {
				t.Fatalf("%v: Done is not closed", h)
			}
		}
		if cause := context.Cause(h.ctx); (h.state == held) != (cause == nil) || h.state == lost && !errors.Is(cause, dlock.ErrLost) {
			t.Fatalf("%v: its context ended with %v", h, cause)
		}
		if h.Token() != h.token || h.Name() != h.name {
			t.Fatalf("%v is now %q with token %d", h, h.Name(), h.Token())
		}
		if n := h.Count(); h.state == held && n != w.count(h.party) {
			t.Fatalf("%v: Count() is %d, want %d", h, n, w.count(h.party))
		}
		w.mu.Lock()
		mourned := w.mourned[h.Hold]
		w.mu.Unlock()
		if mourned > 1 || mourned > 0 && h.state == held {
			t.Fatalf("%v: OnLost was called for it %d times", h, mourned)
		}
	}
}

func (w *world) inspect(t *rapid.T, name string) store.State {
	s, err := w.memory.Inspect(context.Background(), name)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return s
}

// situation shows who holds and who waits, for failures.
func (w *world) situation() string {
	s := "held:"
	for _, h := range w.handles {
		if h.state == held || h.state == lost {
			s += fmt.Sprintf("\n      %v", h)
		}
	}
	s += "\n waiting:"
	for _, p := range w.waiting {
		s += fmt.Sprintf("\n      %v", p)
	}
	return s
}
