package conformance

import "github.com/dlock-go/dlock/store"

var sharedCases = []testCase{
	{
		name: "readers together",
		says: "Two modes are compatible when both are Shared.",
		run: func(h *harness) {
			a, b, c := h.shared("A"), h.shared("B"), h.shared("C")
			for _, r := range []*claim{a, b, c} {
				if r.hold().Holds != 1 {
					r.wrong("holds=1: the others are of other owners")
				}
			}
			h.wantHolders(a, b, c)
		},
	},
	{
		name: "readers that may wait",
		says: "the request is granted, with a new token, if it is compatible with all live holds and no live waiter is ahead of it",
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B").waiting()
			a.hold()
			b.hold()
			b.release()
			h.shared("C").buryAbsent()
			b = h.shared("B").waiting()
			b.hold()
			h.wantHolders(a, b)
		},
	},
	{
		name: "one reader more",
		says: "The id is a live hold. The answer is the same, with the same token",
		run: func(h *harness) {
			for _, others := range [][]string{{"A"}, {"A", "B"}} {
				var all []*claim
				for _, label := range others {
					c := h.shared(label)
					c.hold()
					all = append(all, c)
				}
				c := h.shared("C").label("one reader more")
				g := c.hold()
				if g.TTL <= 0 || g.TTL > c.req.TTL {
					c.wrong("TTL=%v at most", c.req.TTL)
				}
				c.wantReentry(g.Token, 1)
				again := h.shared("C")
				again.wantReentry(g.Token, 2)
				h.wantHolders(append(all, c, again)...)
				again.release()
				for _, other := range all {
					other.release()
				}
				h.wantEntry(h.inspect(h.name).Holders, c, g.Token)
				c.release()
				h.wantFree(h.name)
			}
		},
	},
	{
		name: "last reader out",
		says: "the request is granted, with a new token, if it is compatible with all live holds",
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			b.hold()
			a.release()
			h.exclusive("W").refused(store.ErrHeld)
			b.release()
			h.exclusive("W").hold()
		},
	},
	{
		name: "reader behind a waiting writer",
		says: "if it is compatible with all live holds and no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			h.shared("A").hold()
			w, r := h.exclusive("W"), h.shared("R")
			w.queue()
			r.queue()
			h.wantQueue(w, r)
		},
	},
	{
		name: "impatient reader behind a waiting writer",
		says: "no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			h.shared("A").hold()
			h.exclusive("W").queue()
			h.shared("R").refused(store.ErrHeld)
		},
	},
	{
		name: "downgrade lets readers in",
		says: "Every removal promotes. ... a downgrade: an exclusive hold is released while its owner keeps shared holds", needs: fair,
		run: func(h *harness) {
			write, read := h.exclusive("A"), h.shared("A")
			write.hold()
			read.hold()
			r := h.shared("R")
			r.queue()
			write.release()
			h.wake(r)
			h.wantHolders(read, r)
		},
	},
	{
		name: "downgrade keeps writers out",
		says: "It never grants a waiter beside a hold that it is not compatible with.", needs: fair,
		run: func(h *harness) {
			write, read := h.exclusive("A"), h.shared("A")
			write.hold()
			read.hold()
			w := h.exclusive("W")
			w.queue()
			write.release()
			h.wantHolders(read)
			h.wantQueue(w)
			read.release()
			h.wake(w)
		},
	},
	{
		name: "read released first",
		says: "Release gives up a hold ... It finds the entry by ID and compares nothing weaker.",
		run: func(h *harness) {
			write, read := h.exclusive("A"), h.shared("A")
			write.hold()
			read.hold()
			read.release()
			h.wantHolders(write)
			h.shared("R").refused(store.ErrHeld)
		},
	},
	{
		name: "holds of readers are counted apart",
		says: "Holds int // live holds of this owner, this one included",
		run: func(h *harness) {
			a1, a2, b := h.shared("A"), h.shared("A"), h.shared("B")
			a1.hold()
			b.hold()
			a2.hold()
			if a2.grant.Holds != 2 {
				a2.wrong("holds=2")
			}
			b.release()
			if a1.hold().Holds != 2 {
				a1.wrong("holds=2 still")
			}
		},
	},
}
