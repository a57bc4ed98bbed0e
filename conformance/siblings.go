package conformance

import "github.com/dlock-go/dlock/store"

const saysSiblings = "When an owner is granted, in whatever way, those of its waiting requests that rule 2 now allows are granted as well"

// Requests of one owner that wait behind each other: nested calls must not
// wait for a stranger who waits for them.
var siblingCases = []testCase{
	{
		name: "of a promoted writer",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, write, w, read, write2 := h.exclusive("C"), h.exclusive("A"), h.exclusive("W"), h.shared("A"), h.exclusive("A")
			c.hold()
			for _, x := range []*claim{write, w, read, write2} {
				x.queue()
			}
			c.release()
			token := h.wake(write)
			for _, x := range []*claim{read, write2} {
				if got := h.wake(x); got != token {
					h.failf(fmtToken("the hold's", token), "event for %v with token %d", x, got)
				}
			}
			h.wantHolders(write, read, write2)
			h.wantQueue(w)
		},
	},
	{
		name: "of a promoted reader",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, read, w, read2 := h.exclusive("C"), h.shared("A"), h.exclusive("W"), h.shared("A")
			c.hold()
			for _, x := range []*claim{read, w, read2} {
				x.queue()
			}
			c.release()
			token := h.wake(read)
			if got := h.wake(read2); got != token {
				h.failf(fmtToken("the hold's", token), "event for %v with token %d", read2, got)
			}
			h.wantHolders(read, read2)
			h.wantQueue(w)
		},
	},
	{
		name: "upgrade of a promoted reader",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, read, write := h.exclusive("C"), h.shared("A"), h.exclusive("A")
			c.hold()
			read.queue()
			write.queue()
			c.release()
			token := h.wake(read)
			if up := h.wake(write); up <= token {
				h.failf(fmtToken("an upgrade: more than", token), "token %d", up)
			}
			h.wantHolders(read, write)
		},
	},
	{
		name: "upgrade past a stranger",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, read, w, write := h.exclusive("C"), h.shared("A"), h.exclusive("W"), h.exclusive("A")
			c.hold()
			for _, x := range []*claim{read, w, write} {
				x.queue()
			}
			c.release()
			token := h.wake(read)
			if up := h.wake(write); up <= token {
				h.failf(fmtToken("an upgrade: more than", token), "token %d", up)
			}
			h.wantQueue(w)
		},
	},
	{
		name: "of an upgrade that was promoted",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			// All of A's exclusive requests took their places before A held.
			c, b, a := h.exclusive("C"), h.shared("B"), h.shared("A")
			up, w, up2 := h.exclusive("A"), h.exclusive("W"), h.exclusive("A")
			c.hold()
			for _, x := range []*claim{b, a, up, w, up2} {
				x.queue()
			}
			c.release()
			b.release()
			token := h.wake(up)
			if got := h.wake(up2); got != token {
				h.failf(fmtToken("the upgrade's", token), "event for %v with token %d", up2, got)
			}
			h.wantHolders(a, up, up2)
			h.wantQueue(w)
		},
	},
	{
		name: "upgrade waits for other readers",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, b, up := h.waitingUpgrade()
			h.wantHolders(a, b)
			h.wantQueue(up)
			b.release()
			h.wantHolders(a, up)
		},
	},
	{
		name: "upgrade before the next reader",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, read, r, write := h.exclusive("C"), h.shared("A"), h.shared("R"), h.exclusive("A")
			c.hold()
			for _, x := range []*claim{read, r, write} {
				x.queue()
			}
			c.release()
			h.wantHolders(read, write)
			h.wantQueue(r)
		},
	},
	{
		name: "of a waiter that an expiry lets in",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, w, x, w2 := h.exclusive("C").lease(h.ttl), h.exclusive("A"), h.exclusive("X"), h.shared("A")
			c.hold()
			held := h.last
			h.rely(held, h.ttl)
			for _, q := range []*claim{w, x, w2} {
				q.queue()
			}
			h.after(held, h.ttl)
			h.wantSiblings(w.hold().Token, w, w2, x)
		},
	},
	{
		name: "of a waiter that Break lets in",
		says: saysSiblings, needs: fair | breaker,
		run: func(h *harness) {
			c, w, x, w2 := h.exclusive("C"), h.exclusive("A"), h.exclusive("X"), h.shared("A")
			c.hold()
			for _, q := range []*claim{w, x, w2} {
				q.queue()
			}
			h.wantBroken(h.name, 1)
			h.wantSiblings(h.wake(w), w, w2, x)
		},
	},
	{
		name: "that asked again after its place had died",
		says: saysSiblings, needs: fair,
		run: func(h *harness) {
			c, w, x, w2 := h.exclusive("C"), h.exclusive("A"), h.exclusive("X"), h.shared("A").waitTTL(2*h.ttl)
			c.hold()
			w.queue()
			x.queue()
			w2.queue()
			h.after(h.last, 2*h.ttl)
			w2.queue()
			h.rely(h.last, 2*h.ttl)
			c.release()
			h.wantHolders(w, w2)
			h.wantSiblings(h.wake(w), w, w2, x)
		},
	},
	{
		name: "of another process",
		says: saysSiblings, needs: fair | peer | common,
		run: func(h *harness) {
			for range 10 {
				c, first, w, second := h.exclusive("C"), h.exclusive("A"), h.exclusive("W"), h.exclusive("A").through(h.other)
				c.hold()
				for _, x := range []*claim{first, w, second} {
					x.queue()
				}
				c.release()
				token := h.wake(first)
				first.release() // when the other process may not have heard yet
				if got := h.wake(second); got != token {
					h.failf(fmtToken("the hold's", token), "event for %v with token %d", second, got)
				}
				h.wantQueue(w)
				second.release()
				h.wake(w)
				w.release()
			}
		},
	},
	{
		name: "of another process, and given up at once",
		says: saysSiblings, needs: fair | peer | common,
		run: func(h *harness) {
			for i := range 10 {
				c, first, w, second := h.exclusive("C"), h.exclusive("A"), h.exclusive("W"), h.shared("A").through(h.other)
				c.hold()
				for _, x := range []*claim{first, w, second} {
					x.queue()
				}
				c.release()
				first.wantRelease(i%2 > 0, nil)
				h.wake(second)
				h.wantHolders(second)
				h.wantQueue(w)
				second.release()
				h.wake(w)
				w.release()
			}
		},
	},
	{
		name: "upgrade from another process",
		says: saysSiblings, needs: fair | peer | common,
		run: func(h *harness) {
			for range 10 {
				c, read, w, write := h.exclusive("C"), h.shared("A"), h.exclusive("W"), h.exclusive("A").through(h.other)
				c.hold()
				for _, x := range []*claim{read, w, write} {
					x.queue()
				}
				c.release()
				token := h.wake(read)
				read.release()
				if up := h.wake(write); up <= token {
					h.failf(fmtToken("an upgrade: more than", token), "token %d", up)
				}
				h.wantQueue(w)
				write.release()
				h.wake(w)
				w.release()
			}
		},
	},
	{
		name: "count among the holds",
		says: "Holds int // live holds of this owner, this one included", needs: fair | peer | common,
		run: func(h *harness) {
			for range 10 {
				c, first, second := h.exclusive("C"), h.exclusive("A"), h.exclusive("A").through(h.other)
				c.hold()
				first.queue()
				second.queue()
				c.release()
				third := h.exclusive("A")
				third.wantReentry(h.wake(first), 3)
				for _, x := range []*claim{first, second, third} {
					x.release()
				}
			}
		},
	},
	{
		name: "a reader before an upgrade behind a downgrade",
		says: saysPromote, needs: fair | peer,
		run: func(h *harness) {
			for range 10 {
				write, read, r, up := h.exclusive("A"), h.shared("A"), h.shared("R").through(h.other), h.exclusive("A")
				write.hold()
				read.hold()
				r.queue()
				write.release()
				up.refused(store.ErrUpgrade) // though the other process may not have heard yet
				h.wake(r)
				h.wantHolders(read, r)
				read.release()
				r.release()
			}
		},
	},
	{
		name: "counted when they re-enter at once",
		says: "Holds int // live holds of this owner, this one included", needs: peer | common,
		run: func(h *harness) {
			for range 20 {
				first, again, other := h.exclusive("A"), h.exclusive("A"), h.exclusive("A").through(h.other)
				first.hold()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer h.recovered("case")
					other.ask()
				}()
				again.ask()
				<-done
				h.stopIfFailed()
				if n, m := again.grant.Holds, other.grant.Holds; min(n, m) != 2 || max(n, m) != 3 {
					h.failf("2 and 3", "%d and %d holds", n, m)
				}
				for _, x := range []*claim{first, again, other} {
					x.release()
				}
			}
		},
	},
	{
		name: "strangers in between stay",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			c, write, r, read := h.exclusive("C"), h.exclusive("A"), h.shared("R"), h.shared("A")
			c.hold()
			for _, x := range []*claim{write, r, read} {
				x.queue()
			}
			c.release()
			h.wantHolders(write, read)
			write.release() // a downgrade now
			h.wantHolders(read, r)
		},
	},
}

// wantSiblings wants that second is granted with the token of first, which is of its owner, and that
// a stranger waits on.
func (h *harness) wantSiblings(token uint64, first, second, stranger *claim) {
	if got := h.wake(second); got != token {
		h.failf(fmtToken("the hold's", token), "event for %v with token %d", second, got)
	}
	h.wantHolders(first, second)
	h.wantQueue(stranger)
}
