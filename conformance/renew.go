package conformance

import (
	"fmt"

	"github.com/dlock-go/dlock/store"
)

const (
	saysRenew  = "Renew sets the deadline of each hold to its TTL from now."
	saysRevive = "It finds holds by ID and never revives one: an id that is dead, released, buried or merely queued is ErrLost."
	saysBatch  = "It returns one result for each hold, in order: nil for renewed, ErrLost for certainly gone ... There may be thousands of holds of many names in one call, in any order. One that fails does not affect the others."
)

var renewCases = []testCase{
	{
		name: "extends",
		says: saysRenew,
		run: func(h *harness) {
			a := h.exclusive("A").lease(2 * h.ttl)
			a.hold()
			first := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			a.renew(2 * h.ttl)
			renewed := h.last
			h.before(renewed, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
			h.after(renewed, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "sets a shorter lease",
		says: saysRenew,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.renew(h.ttl)
			h.after(h.last, h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "keeps the token",
		says: "The id is a live hold. The answer is the same, with the same token",
		run: func(h *harness) {
			a := h.exclusive("A")
			token := a.hold().Token
			a.renew(h.long)
			a.wantReentry(token, 1)
		},
	},
	{
		name: "unknown id",
		says: saysRevive,
		run: func(h *harness) {
			h.exclusive("A").renewLost()
			h.exclusive("B").hold()
			h.exclusive("A").renewLost()
		},
	},
	{
		name: "expired",
		says: saysRevive,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			a.hold()
			h.after(h.last, h.ttl)
			a.renewLost()
			h.exclusive("B").hold()
		},
	},
	{
		name: "released",
		says: saysRevive,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.release()
			a.renewLost()
			h.exclusive("B").hold()
		},
	},
	{
		name: "expired and granted to another",
		says: saysRevive,
		run: func(h *harness) {
			a, b := h.shared("A").lease(h.ttl), h.shared("B")
			a.hold()
			h.after(h.last, h.ttl)
			b.hold()
			a.renewLost()
			h.wantHolders(b)
		},
	},
	{
		name: "other id of the owner",
		says: "It finds holds by ID",
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.exclusive("A").renewLost()
		},
	},
	{
		name: "only its own",
		says: "Renew sets the deadline of each hold to its TTL from now. ... It finds holds by ID",
		run: func(h *harness) {
			kept, left := h.shared("A"), h.shared("A").lease(2*h.ttl)
			kept.hold()
			left.hold()
			ends := h.last
			h.sleep(h.ttl)
			kept.renew(h.long)
			h.after(ends, 2*h.ttl)
			h.wantHolders(kept)
		},
	},
	{
		name: "only its own reader",
		says: "Renew sets the deadline of each hold to its TTL from now. ... It finds holds by ID",
		run: func(h *harness) {
			a, b := h.shared("A").lease(2*h.ttl), h.shared("B").lease(2*h.ttl)
			a.hold()
			first := h.last
			b.hold()
			ends := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			a.renew(h.long)
			h.after(ends, 2*h.ttl)
			h.wantHolders(a)
		},
	},
	{
		name: "each to its own lease",
		says: "Renew sets the deadline of each hold to its TTL from now.",
		run: func(h *harness) {
			a, b, c := h.shared("A"), h.shared("B"), h.shared("C")
			for _, x := range []*claim{a, b, c} {
				x.hold()
			}
			if errs := h.renew(a.refFor(h.long), b.refFor(h.ttl), c.refFor(h.long)); errs[0] != nil || errs[1] != nil || errs[2] != nil {
				h.fail("Renew(3 holds)", describeErrors(errs), "[nil, nil, nil]")
			}
			h.after(h.last, h.ttl)
			h.wantHolders(a, c)
		},
	},
	{
		name: "a longer one stays",
		says: saysRenew,
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			b.hold()
			b.renew(h.ttl)
			h.after(h.last, h.ttl)
			h.exclusive("C").refused(store.ErrHeld)
			h.wantHolders(a)
		},
	},
	{
		name: "mixed batch",
		says: saysBatch,
		run: func(h *harness) {
			a, b := h.exclusive("A"), h.shared("B").on(h.name+"/b")
			gone, never := h.exclusive("G").on(h.name+"/g"), h.exclusive("N")
			a.hold()
			b.hold()
			gone.hold()
			gone.release()
			h.wantRenewed([]*claim{gone, a, never, b, gone, a}, false, true, false, true, false, true)
		},
	},
	{
		name: "failure does not stop the rest",
		says: saysBatch,
		run: func(h *harness) {
			gone, a := h.exclusive("G").on(h.name+"/g"), h.exclusive("A").lease(2*h.ttl)
			a.hold()
			first := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			h.renew(gone.ref(), a.refFor(h.long))
			h.after(first, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "empty batch",
		says: "No holds: no results.",
		run: func(h *harness) {
			h.renew()
			h.renew([]store.Ref{}...)
		},
	},
	{
		name: "thousands",
		says: saysBatch,
		run: func(h *harness) {
			// A few hundred that are there, spread among ten times as many.
			var refs []store.Ref
			var held []bool
			live := h.rounds(300)
			for i := range live {
				c := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i))
				c.hold()
				for range 3000/live - 1 {
					refs = append(refs, h.exclusive("A").on(c.req.Name).ref())
					held = append(held, false)
				}
				refs = append(refs, c.ref())
				held = append(held, true)
			}
			for i, err := range h.renew(refs...) {
				if held[i] && err != nil || !held[i] && !isLost(err) {
					h.fail(fmt.Sprintf("Renew(%d holds), result %d", len(refs), i), describeError(err), fmt.Sprintf("held: %v", held[i]))
				}
			}
		},
	},
}

// wantRenewed renews all in one call and wants ErrLost where held is false.
func (h *harness) wantRenewed(claims []*claim, held ...bool) {
	refs := make([]store.Ref, len(claims))
	want := make([]error, len(claims))
	for i, c := range claims {
		refs[i] = c.ref()
		if !held[i] {
			want[i] = store.ErrLost
		}
	}
	if errs := h.renew(refs...); describeErrors(errs) != describeErrors(want) {
		h.fail(fmt.Sprintf("Renew(%d holds)", len(refs)), describeErrors(errs), describeErrors(want))
	}
}
