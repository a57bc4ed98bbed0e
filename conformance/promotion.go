package conformance

import "github.com/dlock-go/dlock/store"

const saysPromoted = "A promoted waiter becomes a hold with deadline now+WaitTTL. The hold reaches its full TTL with its first renewal, or when its id asks again."

// Leases of holds that were granted while nobody asked.
var promotionCases = []testCase{
	{
		name: "lasts WaitTTL",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").waitTTL(2*h.ttl)
			a.hold()
			w.queue()
			h.rely(h.last, 2*h.ttl)
			a.release()
			promoted := h.last
			h.wake(w)
			h.before(promoted, 2*h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
			h.after(promoted, 2*h.ttl)
			h.exclusive("X").hold()
		},
	},
	{
		name: "does not inherit the age of its place",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").waitTTL(2*h.ttl)
			a.hold()
			w.queue()
			place := h.last
			h.sleep(h.ttl)
			h.rely(place, 2*h.ttl)
			a.release()
			h.before(h.last, 2*h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
		},
	},
	{
		name: "outlasts the places behind it",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			// Promoted so late that it is there still when the places have certainly ended.
			late := h.ttl + h.lag
			end := late + h.ttl
			a := h.exclusive("A").lease(end)
			w1, w2 := h.exclusive("W1").waitTTL(end), h.exclusive("W2").waitTTL(end)
			a.hold()
			head := h.last
			h.rely(head, end)
			w1.queue()
			w2.queue()
			places := h.last
			h.sleep(late)
			h.rely(head, end)
			a.release()
			promoted := h.last
			h.after(places, end)
			h.rely(promoted, end)
			h.exclusive("X").refused(store.ErrHeld)
		},
	},
	{
		name: "renewed to its TTL",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").waitTTL(h.ttl).lease(3*h.ttl)
			a.hold()
			w.queue()
			h.rely(h.last, h.ttl)
			a.release()
			w.renew(3 * h.ttl)
			h.before(h.last, 3*h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
		},
	},
	{
		name: "asked again reaches its TTL",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").waitTTL(h.ttl).lease(3*h.ttl)
			a.hold()
			w.queue()
			h.rely(h.last, h.ttl)
			a.release()
			w.hold()
			h.before(h.last, 3*h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
		},
	},
	{
		name: "fixed reaches its TTL once",
		says: "a hint: the hold reaches its TTL once and is not renewed after that. A store may ignore it and never refuses a renewal because of it", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").waitTTL(h.ttl).lease(3*h.ttl).fixed()
			a.hold()
			w.queue()
			h.rely(h.last, h.ttl)
			a.release()
			w.renew(3 * h.ttl)
			renewed := h.last
			h.before(renewed, 3*h.ttl)
			h.exclusive("X").refused(store.ErrHeld)
			h.after(renewed, 3*h.ttl)
			h.exclusive("X").hold()
		},
	},
	{
		name: "dead waiter costs its WaitTTL",
		says: "So a waiter whose client has died costs the other owners at most its WaitTTL after its promotion.", needs: fair,
		run: func(h *harness) {
			a, dead, w := h.exclusive("A"), h.exclusive("D").waitTTL(2*h.ttl), h.exclusive("W")
			a.hold()
			dead.queue()
			h.rely(h.last, 2*h.ttl)
			w.queue()
			a.release()
			promoted := h.last
			h.wake(dead)
			h.after(promoted, 2*h.ttl)
			w.hold()
		},
	},
	{
		name: "each of the readers lasts its own WaitTTL",
		says: saysPromoted, needs: fair,
		run: func(h *harness) {
			a, r1, r2 := h.exclusive("A"), h.shared("R1").waitTTL(2*h.ttl), h.shared("R2")
			a.hold()
			r1.queue()
			h.rely(h.last, 2*h.ttl)
			r2.queue()
			a.release()
			h.after(h.last, 2*h.ttl)
			h.wantHolders(r2)
			r1.renewLost()
		},
	},
	{
		name: "is a hold like any other",
		says: "A promoted waiter becomes a hold", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			token := h.wake(w)
			h.exclusive("W").wantReentry(token, 2)
			w.release()
		},
	},
	{
		name: "impatient ask finds the hold",
		says: "The id is a live hold. The answer is the same, with the same token", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			w.impatient().hold()
		},
	},
}
