package conformance

import "github.com/dlock-go/dlock/store"

const (
	saysQueue   = "with Queue, the request gets a place at the end of the queue or keeps the place it has"
	saysPromote = "Promotion goes from the head of the queue as far as rule 3 allows: one exclusive waiter, or all leading shared waiters together. It never grants a waiter beside a hold that it is not compatible with."
)

// Order among waiters.
var queueCases = []testCase{
	{
		name: "not past a waiter of the same owner",
		says: "no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			h.shared("B").hold()
			w, r := h.exclusive("A"), h.shared("A")
			w.queue()
			h.shared("A").refused(store.ErrHeld)
			if r.queue().Position != 2 {
				r.wrong("position=2")
			}
			h.wantQueue(w, r)
		},
	},
	{
		name: "writers in order",
		says: "a first-in-first-out queue of live waiters", needs: fair,
		run: func(h *harness) {
			holder := h.exclusive("A")
			holder.hold()
			w := []*claim{h.exclusive("W1"), h.exclusive("W2"), h.exclusive("W3")}
			for _, c := range w {
				c.queue()
			}
			for i, next := range w {
				holder.release()
				h.wantHolders(next)
				h.wantQueue(w[i+1:]...)
				holder = next
			}
		},
	},
	{
		name: "last waiter leaves behind a promoted hold",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1"), h.exclusive("W2")
			a.hold()
			w1.queue()
			w2.queue()
			a.release()
			h.wake(w1)
			w2.release()
			h.wantQueue()
			w1.renew(h.long)
			h.wantHolders(w1)
			w1.release()
			h.exclusive("X").hold()
		},
	},
	{
		name: "positions",
		says: "Position int // place in the queue: 1 is the head", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := []*claim{h.exclusive("W1"), h.shared("W2"), h.exclusive("W3")}
			for i, c := range w {
				if c.queue().Position != i+1 {
					c.wrong("position=%d", i+1)
				}
			}
			w[0].release()
			if w[2].queue().Position != 2 {
				w[2].wrong("position=2, for the head has left")
			}
		},
	},
	{
		name: "asking again keeps the place",
		says: saysQueue, needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w1, w2 := h.exclusive("W1"), h.exclusive("W2")
			w1.queue()
			w2.queue()
			if w1.queue().Position != 1 {
				w1.wrong("position=1 still")
			}
			h.wantQueue(w1, w2)
		},
	},
	{
		name: "new requests do not pass",
		says: "no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			h.shared("A").hold()
			w := h.exclusive("W")
			w.queue()
			h.exclusive("X").refused(store.ErrHeld)
			x := h.exclusive("X")
			x.queue()
			h.wantQueue(w, x)
		},
	},
	{
		name: "released lock goes to the head",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			h.exclusive("X").refused(store.ErrHeld)
			h.wantHolders(w)
		},
	},
	{
		name: "one writer at a time",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, w, r := h.exclusive("A"), h.exclusive("W"), h.shared("R")
			a.hold()
			w.queue()
			r.queue()
			a.release()
			h.wantHolders(w)
			h.wantQueue(r)
		},
	},
	{
		name: "leading readers together",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, w, late := h.exclusive("A"), h.exclusive("W"), h.shared("L")
			readers := []*claim{h.shared("R1"), h.shared("R2"), h.shared("R3")}
			a.hold()
			for _, c := range append(readers[:3:3], w, late) {
				c.queue()
			}
			a.release()
			h.wantHolders(readers...)
			h.wantQueue(w, late)
		},
	},
	{
		name: "readers and writers alternate",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a := h.exclusive("A")
			w1, r1, r2, w2, r3 := h.exclusive("W1"), h.shared("R1"), h.shared("R2"), h.exclusive("W2"), h.shared("R3")
			a.hold()
			for _, c := range []*claim{w1, r1, r2, w2, r3} {
				c.queue()
			}
			a.release()
			h.wantHolders(w1)
			w1.release()
			h.wantHolders(r1, r2)
			r2.release()
			h.wantHolders(r1)
			r1.release()
			h.wantHolders(w2)
			w2.release()
			h.wantHolders(r3)
		},
	},
	{
		name: "writer waits for all readers",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, b, w := h.shared("A"), h.shared("B"), h.exclusive("W")
			a.hold()
			b.hold()
			w.queue()
			a.release()
			h.wantHolders(b)
			h.wantQueue(w)
			b.release()
			h.wantHolders(w)
		},
	},
	{
		name: "cancelled head",
		says: "Every removal promotes. The removals are a release, a place given up", needs: fair,
		run: func(h *harness) {
			a, w, r := h.shared("A"), h.exclusive("W"), h.shared("R")
			a.hold()
			w.queue()
			r.queue()
			w.release()
			h.wantHolders(a, r)
		},
	},
	{
		name: "cancelled in the middle",
		says: "Release gives up a hold, or a place in the queue, and promotes.", needs: fair,
		run: func(h *harness) {
			a, r1, w, r2 := h.exclusive("A"), h.shared("R1"), h.exclusive("W"), h.shared("R2")
			a.hold()
			r1.queue()
			w.queue()
			r2.queue()
			w.release()
			h.wantQueue(r1, r2)
			a.release()
			h.wantHolders(r1, r2)
		},
	},
	{
		name: "writer is not starved",
		says: "no live waiter is ahead of it", needs: fair,
		run: func(h *harness) {
			// Readers who come and go so that one always holds.
			reader, w := h.shared("R"), h.exclusive("W")
			reader.hold()
			w.queue()
			for range 5 {
				next := h.shared("N")
				next.refused(store.ErrHeld)
			}
			reader.release()
			h.wantHolders(w)
		},
	},
	{
		name: "many waiters",
		says: "a first-in-first-out queue of live waiters", needs: fair,
		run: func(h *harness) {
			holder := h.exclusive("A")
			holder.hold()
			waiters := make([]*claim, h.rounds(150))
			for i := range waiters {
				waiters[i] = h.exclusive("W")
				waiters[i].req.Owner += waiters[i].req.ID[:6]
				if waiters[i].queue().Position != i+1 {
					waiters[i].wrong("position=%d", i+1)
				}
			}
			for i, next := range waiters {
				holder.release()
				if i%20 == 0 {
					h.wantHolders(next)
				}
				holder = next
			}
		},
	},
}
