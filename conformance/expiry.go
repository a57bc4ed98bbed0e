package conformance

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	saysDead    = "An entry whose deadline is not after the store's present is dead, and every operation treats it as absent."
	saysEach    = "A hold has an acquisition id, an owner, a Mode, a deadline and a token."
	saysNoticed = "Whatever operation comes next notices an expiry and promotes, Inspect too."
)

// oneLastsLongest has readers of whom the first or the last is there still when the
// others have certainly ended.
func (h *harness) oneLastsLongest(first bool) {
	longer := 2*h.ttl + h.lag
	for _, others := range [][]string{{"B"}, {"B", "C"}} {
		var long callTime
		one := func() {
			h.shared("A").lease(longer).hold()
			long = h.last
		}
		if first {
			one()
		}
		for _, label := range others {
			h.shared(label).lease(h.ttl).hold()
		}
		short := h.last
		if !first {
			one()
		}
		h.after(short, h.ttl)
		h.rely(long, longer)
		h.exclusive("W").refused(store.ErrHeld)
		h.after(long, longer)
	}
	h.exclusive("W").hold()
}

// longest is the longest TTL that a store has to keep.
const longest = 366 * 24 * time.Hour

var expiryCases = []testCase{
	{
		name: "exclusive",
		says: saysDead,
		run: func(h *harness) {
			h.exclusive("A").lease(2 * h.ttl).hold()
			lease := h.last
			h.before(lease, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "shared",
		says: saysDead,
		run: func(h *harness) {
			h.shared("A").lease(2 * h.ttl).hold()
			lease := h.last
			h.before(lease, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "fixed",
		says: "a hint: the hold reaches its TTL once and is not renewed after that. A store may ignore it and never refuses a renewal because of it",
		run: func(h *harness) {
			h.exclusive("A").lease(2 * h.ttl).fixed().hold()
			lease := h.last
			h.before(lease, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "not before Grant.TTL",
		says: "TTL is how much of a hold's lease certainly remains, counted from the moment before the request was sent.",
		run: func(h *harness) {
			a := h.exclusive("A").lease(4 * h.ttl)
			g := a.hold()
			sent := h.last
			h.sleep(h.ttl)
			h.rely(sent, g.TTL)
			if g = a.hold(); g.TTL <= 0 {
				a.wrong("what is left of the lease as Grant.TTL")
			}
			h.before(h.last, g.TTL)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "the first reader lasts longest",
		says: saysEach,
		run:  func(h *harness) { h.oneLastsLongest(true) },
	},
	{
		name: "the last reader lasts longest",
		says: saysEach,
		run:  func(h *harness) { h.oneLastsLongest(false) },
	},
	{
		name: "a reader who stays keeps his lease",
		says: saysEach,
		run: func(h *harness) {
			longer := 2*h.ttl + h.lag
			visit := func(others []string, lease time.Duration) {
				var gone []*claim
				for _, label := range others {
					c := h.shared(label).lease(lease)
					c.hold()
					if gone = append(gone, c); len(gone) == 1 {
						h.rely(h.last, lease)
					}
				}
				for _, c := range gone {
					c.release()
				}
			}
			for _, others := range [][]string{{"B"}, {"B", "C"}} {
				h.shared("A").lease(h.ttl).hold()
				short := h.last
				visit(others, longer)
				h.after(short, h.ttl)
				w := h.exclusive("W")
				w.hold()
				w.release()

				h.shared("A").lease(longer).hold()
				long := h.last
				visit(others, h.ttl)
				h.after(h.last, h.ttl)
				h.rely(long, longer)
				h.exclusive("W").refused(store.ErrHeld)
				h.after(long, longer)
			}
			h.exclusive("W").hold()
		},
	},
	{
		name: "is no re-entry",
		says: saysDead,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			token := a.hold().Token
			h.after(h.last, h.ttl)
			again := h.exclusive("A")
			if g := again.hold(); g.Holds != 1 || g.Token <= token {
				again.wrong("holds=1 and a token greater than %d", token)
			}
		},
	},
	{
		name: "id asks again",
		says: saysDead,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			token := a.hold().Token
			h.after(h.last, h.ttl)
			if a.hold().Token <= token {
				a.wrong("a new token, greater than %d", token)
			}
		},
	},
	{
		name: "is not counted",
		says: "Holds int // live holds of this owner, this one included",
		run: func(h *harness) {
			short, long := h.exclusive("A").lease(h.ttl), h.exclusive("A")
			token := long.hold().Token
			short.hold()
			h.after(h.last, h.ttl)
			if g := long.hold(); g.Holds != 1 || g.Token != token {
				long.wrong("holds=1 and token %d, for the other one has ended and this one has not", token)
			}
		},
	},
	{
		name: "a longer re-entry stays",
		says: saysEach,
		run: func(h *harness) {
			longer := 2*h.ttl + h.lag
			outer, inner := h.exclusive("A").lease(h.ttl), h.exclusive("A").lease(longer)
			outer.hold()
			first := h.last
			if g := inner.hold(); g.TTL <= h.ttl {
				inner.wrong("more than %v, its own lease, as Grant.TTL", h.ttl)
			}
			lease := h.last
			h.after(first, h.ttl)
			h.rely(lease, longer)
			h.exclusive("B").refused(store.ErrHeld)
			h.wantHolders(inner)
		},
	},
	{
		name: "does not hinder an upgrade",
		says: saysDead,
		run: func(h *harness) {
			h.shared("A").hold()
			h.shared("B").lease(h.ttl).hold()
			h.after(h.last, h.ttl)
			h.exclusive("A").hold()
		},
	},
	{
		name: "exclusive ends before shared",
		says: saysDead,
		run: func(h *harness) {
			write, read := h.exclusive("A").lease(h.ttl), h.shared("A")
			write.hold()
			first := h.last
			h.rely(first, h.ttl)
			read.hold()
			h.after(first, h.ttl)
			h.exclusive("W").refused(store.ErrHeld)
			h.shared("R").hold()
		},
	},
	{
		name: "noticed by Acquire",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			h.expireBeforeWaiter(func() { h.exclusive("X").refused(store.ErrHeld) })
		},
	},
	{
		name: "noticed by Release",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			h.expireBeforeWaiter(func() { h.exclusive("X").releaseLost() })
		},
	},
	{
		name: "noticed by its own release",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A").lease(h.ttl), h.exclusive("W")
			a.hold()
			held := h.last
			h.rely(held, h.ttl)
			w.queue()
			h.after(held, h.ttl)
			a.releaseLost()
			h.wake(w)
		},
	},
	{
		name: "noticed by Renew",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			h.expireBeforeWaiter(func() { h.exclusive("X").renewLost() })
		},
	},
	{
		name: "noticed by Inspect",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			h.expireBeforeWaiter(func() { h.inspect(h.name) })
		},
	},
	{
		name: "waiter asks again",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A").lease(h.ttl), h.exclusive("W")
			a.hold()
			held := h.last
			h.rely(held, h.ttl)
			w.queue()
			h.after(held, h.ttl)
			w.hold()
		},
	},
	{
		name: "longest lease",
		says: "Each TTL and WaitTTL is at least MinTTL and at most 366 days.",
		run: func(h *harness) {
			a := h.exclusive("A").lease(longest).waitTTL(longest)
			if g := a.hold(); g.TTL <= h.long || g.TTL > longest {
				a.wrong("TTL=%v or a little less", longest)
			}
			h.exclusive("B").refused(store.ErrHeld)
			a.renew(longest)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "downgrade promotes",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			write, read, r := h.exclusive("A").lease(h.ttl), h.shared("A"), h.shared("R")
			write.hold()
			first := h.last
			h.rely(first, h.ttl)
			read.hold()
			r.queue()
			h.after(first, h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
			h.wake(r)
			h.wantHolders(read, r)
		},
	},
	{
		name: "lets a waiting upgrade in",
		says: saysNoticed, needs: fair,
		run: func(h *harness) {
			c, b, a, up := h.exclusive("C"), h.shared("B").waitTTL(2*h.ttl), h.shared("A"), h.exclusive("A")
			c.hold()
			b.queue()
			h.rely(h.last, 2*h.ttl)
			a.queue()
			up.queue()
			c.release()
			promoted := h.last
			h.wantHolders(a, b)
			h.after(promoted, 2*h.ttl) // b was never renewed
			h.exclusive("X").refused(store.ErrHeld)
			h.wake(up)
			h.wantHolders(a, up)
		},
	},
	{
		name: "shortest lease",
		says: "MinTTL is the shortest TTL this store keeps.",
		run: func(h *harness) {
			shortest := h.main.MinTTL()
			if shortest <= 0 {
				h.fail("MinTTL()", shortest.String(), "more than 0")
			}
			a := h.exclusive("A").lease(shortest)
			a.hold()
			h.after(h.last, shortest)
			h.exclusive("B").hold()
		},
	},
}

// expireBeforeWaiter lets a hold die in front of a waiter, without a call in
// between, and wants the waiter woken by the one operation that follows.
func (h *harness) expireBeforeWaiter(operation func()) {
	a, w := h.exclusive("A").lease(h.ttl), h.exclusive("W")
	a.hold()
	held := h.last
	h.rely(held, h.ttl)
	w.queue()
	h.after(held, h.ttl)
	operation()
	h.wake(w)
}
