package conformance

const saysRelease = "Release gives up a hold, or a place in the queue, and promotes. It finds the entry by ID and compares nothing weaker. ErrLost says that there was none, which is what a repeated Release meets."

var releaseCases = []testCase{
	{
		name: "frees",
		says: saysRelease,
		run: func(h *harness) {
			for _, c := range []*claim{h.exclusive("A"), h.shared("A")} {
				c.hold()
				c.release()
				b := h.exclusive("B")
				b.hold()
				b.release()
			}
		},
	},
	{
		name: "repeated",
		says: saysRelease,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.release()
			a.releaseLost()
			a.releaseLost()
		},
	},
	{
		name: "unknown id",
		says: saysRelease,
		run: func(h *harness) {
			h.exclusive("A").releaseLost()
			a := h.exclusive("A")
			a.hold()
			h.exclusive("B").releaseLost()
			h.wantHolders(a)
		},
	},
	{
		name: "other id of the owner",
		says: "It finds the entry by ID and compares nothing weaker.",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			h.exclusive("A").releaseLost()
			h.wantHolders(a)
		},
	},
	{
		name: "one of the owner's",
		says: "It finds the entry by ID and compares nothing weaker.",
		run: func(h *harness) {
			a, b, c := h.exclusive("A"), h.exclusive("A"), h.shared("A")
			a.hold()
			b.hold()
			c.hold()
			b.release()
			h.wantHolders(a, c)
		},
	},
	{
		name: "late, after acquiring again",
		says: "It finds the entry by ID and compares nothing weaker.",
		run: func(h *harness) {
			first, second := h.exclusive("A"), h.exclusive("A")
			first.hold()
			first.release()
			second.hold()
			first.releaseLost()
			h.wantHolders(second)
		},
	},
	{
		name: "late, after another's grant",
		says: saysRelease,
		run: func(h *harness) {
			a, b := h.exclusive("A").lease(h.ttl), h.exclusive("B")
			a.hold()
			h.after(h.last, h.ttl)
			b.hold()
			a.releaseLost()
			h.wantHolders(b)
		},
	},
	{
		name: "expired",
		says: "every operation treats it as absent",
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			a.hold()
			h.after(h.last, h.ttl)
			a.releaseLost()
		},
	},
	{
		name: "expired beside readers",
		says: saysDead,
		run: func(h *harness) {
			for _, others := range [][]string{{"B"}, {"B", "C"}} {
				a := h.shared("A").lease(h.ttl)
				a.hold()
				lease := h.last
				for _, label := range others {
					h.shared(label).hold()
				}
				h.after(lease, h.ttl)
				a.releaseLost()
			}
		},
	},
	{
		name: "place",
		says: saysRelease, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			w.release()
			h.wantQueue()
			w.releaseLost()
		},
	},
	{
		name: "place of the owner only",
		says: "It finds the entry by ID and compares nothing weaker.", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w1, w2 := h.exclusive("W"), h.exclusive("W")
			w1.queue()
			w2.queue()
			w1.release()
			h.wantQueue(w2)
		},
	},
	{
		name: "other name",
		says: "For each name a store keeps its live holds",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			elsewhere := h.exclusive("A").withID(a.req.ID).on(h.name + "/other")
			elsewhere.releaseLost()
			h.wantHolders(a)
		},
	},
	{
		name: "long after",
		says: "Every operation is idempotent by id.", needs: fair,
		run: func(h *harness) {
			// A second release must not release whoever was promoted by the first.
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1"), h.exclusive("W2")
			a.hold()
			w1.queue()
			w2.queue()
			a.release()
			a.releaseLost()
			h.wantHolders(w1)
			h.wantQueue(w2)
		},
	},
}
