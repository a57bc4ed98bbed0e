package conformance

import "github.com/dlock-go/dlock/store"

const saysPlace = "the place's deadline becomes now+WaitTTL"

// What a place in the queue is and how long it lasts.
var placeCases = []testCase{
	{
		name: "lasts WaitTTL",
		says: saysPlace, needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waitTTL(2 * h.ttl)
			w.queue()
			place := h.last
			h.before(place, 2*h.ttl)
			h.wantQueue(w)
			h.after(place, 2*h.ttl)
			h.wantQueue()
		},
	},
	{
		name: "asking again prolongs it",
		says: saysPlace, needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waitTTL(2 * h.ttl)
			w.queue()
			first := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			w.queue()
			h.before(h.last, 2*h.ttl)
			h.wantQueue(w)
		},
	},
	{
		name: "asking without Queue changes nothing",
		says: "Each says that this call changed nothing, except ErrUpgrade and ErrLost, as stated there.", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W")
			w.queue()
			w.impatient().refused(store.ErrHeld)
			h.wantQueue(w)
		},
	},
	{
		name: "asking without Queue does not prolong it",
		says: "Each says that this call changed nothing, except ErrUpgrade and ErrLost, as stated there.", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waitTTL(2 * h.ttl)
			w.queue()
			place := h.last
			h.sleep(h.ttl)
			w.impatient().ask()
			h.after(place, 2*h.ttl)
			h.wantQueue()
		},
	},
	{
		name: "is no hold",
		says: "an id that is dead, released, buried or merely queued is ErrLost", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W")
			w.queue()
			w.renewLost()
			h.wantQueue(w)
		},
	},
	{
		name: "dead head is skipped",
		says: "An entry whose deadline is not after the store's present is dead, and every operation treats it as absent.", needs: fair,
		run: func(h *harness) {
			a, dead, w := h.exclusive("A"), h.exclusive("D").waitTTL(h.ttl), h.exclusive("W")
			a.hold()
			dead.queue()
			place := h.last
			w.queue()
			h.after(place, h.ttl)
			a.release()
			h.wake(w)
			h.wantHolders(w)
		},
	},
	{
		name: "dead waiter is granted nothing",
		says: "An entry whose deadline is not after the store's present is dead, and every operation treats it as absent.", needs: fair,
		run: func(h *harness) {
			a, dead := h.exclusive("A"), h.exclusive("D").waitTTL(h.ttl)
			a.hold()
			dead.queue()
			h.after(h.last, h.ttl)
			a.release()
			h.wantHolders()
			h.quiet()
			h.wantNoWake(dead)
		},
	},
	{
		name: "dead waiters are not counted",
		says: "Position int // place in the queue: 1 is the head", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.exclusive("D").waitTTL(h.ttl).queue()
			h.after(h.last, h.ttl)
			if w := h.exclusive("W"); w.queue().Position != 1 {
				w.wrong("position=1, for who was before is dead")
			}
		},
	},
	{
		name: "outlasts hold and head",
		says: "Whatever operation comes next notices an expiry and promotes", needs: fair,
		run: func(h *harness) {
			end := 2*h.ttl + h.lag
			h.exclusive("A").lease(end).hold()
			held := h.last
			h.rely(held, end)
			w1, w2 := h.exclusive("W1").waitTTL(h.ttl), h.exclusive("W2")
			w1.queue()
			place := h.last
			w2.queue()
			h.after(place, h.ttl)
			h.rely(held, end) // the head has died before the hold
			h.after(held, end)
			h.exclusive("B").refused(store.ErrHeld)
			h.wantHolders(w2)
		},
	},
	{
		name: "dead writer among readers",
		says: "An entry whose deadline is not after the store's present is dead, and every operation treats it as absent.", needs: fair,
		run: func(h *harness) {
			a, r1, dead, r2 := h.exclusive("A"), h.shared("R1"), h.exclusive("D").waitTTL(h.ttl), h.shared("R2")
			a.hold()
			r1.queue()
			dead.queue()
			place := h.last
			r2.queue()
			h.after(place, h.ttl)
			a.release()
			h.wake(r1)
			h.wake(r2)
			h.wantHolders(r1, r2)
		},
	},
	{
		name: "dead writer no longer blocks readers",
		says: "no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			a, dead, r := h.shared("A"), h.exclusive("D").waitTTL(h.ttl), h.shared("R")
			a.hold()
			dead.queue()
			place := h.last
			h.after(place, h.ttl)
			r.hold()
		},
	},
	{
		name: "dead writer lets a queued reader in",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, dead, r := h.shared("A"), h.exclusive("D").waitTTL(h.ttl), h.shared("R")
			a.hold()
			dead.queue()
			place := h.last
			r.queue()
			h.after(place, h.ttl)
			h.inspect(h.name) // a store may notice the end at the next operation
			h.wake(r)
			h.wantHolders(a, r)
		},
	},
	{
		name: "dead id asks again at the end",
		says: "An entry whose deadline is not after the store's present is dead, and every operation treats it as absent.", needs: fair,
		run: func(h *harness) {
			a, dead, w := h.exclusive("A"), h.exclusive("D").waitTTL(h.ttl), h.exclusive("W")
			a.hold()
			dead.queue()
			place := h.last
			w.queue()
			h.after(place, h.ttl)
			dead.queue()
			h.rely(h.last, h.ttl)
			h.wantQueue(w, dead)
		},
	},
	{
		name: "dead place cannot be released",
		says: "ErrLost says that there was none", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waitTTL(h.ttl)
			w.queue()
			h.after(h.last, h.ttl)
			w.releaseLost()
		},
	},
	{
		name: "retry is staggered",
		says: "a little more for each place further back, so that waiters do not ask all at once", needs: fair,
		run: func(h *harness) {
			a := h.exclusive("A").lease(5 * h.ttl)
			a.hold()
			held := h.last
			h.rely(held, 5*h.ttl)
			var before store.Grant
			var asked callTime
			for i, c := range []*claim{h.exclusive("W1"), h.exclusive("W2"), h.exclusive("W3")} {
				g := c.queue()
				h.wantRetry(c, g, held, 5*h.ttl)
				if i > 0 && h.last.answered+g.Retry <= asked.sent+before.Retry {
					c.wrong("a retry later than that of the place before it, %v", before.Retry)
				}
				before, asked = g, h.last
			}
		},
	},
	{
		name: "queued answer",
		says: "Queued: the last token issued for this name so far", needs: fair,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			w := h.exclusive("W")
			if w.queue().Token < token {
				w.wrong("a token not less than %d", token)
			}
		},
	},
	{
		name: "queued token is less than that of its grant",
		says: "A new token is greater than every token of that name before it.", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			queued := w.queue().Token
			a.release()
			if granted := h.wake(w); granted <= queued {
				h.failf(fmtToken("more than", queued), "granted with token %d", granted)
			}
		},
	},
}
