package conformance

import "github.com/dlock-go/dlock/store"

const saysUpgrade = "If all are shared and the request asks for Exclusive, it is an upgrade. An upgrade is granted with a new token if no other owner has a hold. Otherwise it is refused with ErrUpgrade at once, and a place that the id has is given up. An upgrade never waits."

var upgradeCases = []testCase{
	{
		name: "granted",
		says: saysUpgrade,
		run: func(h *harness) {
			h.shared("A").hold()
			up := h.exclusive("A")
			if up.hold().Holds != 2 {
				up.wrong("holds=2")
			}
			h.shared("B").refused(store.ErrHeld)
		},
	},
	{
		name: "new token",
		says: saysUpgrade,
		run: func(h *harness) {
			shared := h.shared("A").hold().Token
			up := h.exclusive("A")
			if up.hold().Token <= shared {
				up.wrong("a token greater than %d, that of the shared hold", shared)
			}
		},
	},
	{
		name: "refused",
		says: saysUpgrade,
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			b.hold()
			h.exclusive("A").refused(store.ErrUpgrade)
			h.wantHolders(a, b)
		},
	},
	{
		name: "never waits",
		says: saysUpgrade,
		run: func(h *harness) {
			h.shared("A").hold()
			b := h.shared("B")
			b.hold()
			up := h.exclusive("A").waiting()
			up.refused(store.ErrUpgrade)
			b.release()
			up.releaseLost()
		},
	},
	{
		name: "granted when the others are gone",
		says: saysUpgrade,
		run: func(h *harness) {
			h.shared("A").hold()
			b := h.shared("B")
			b.hold()
			up := h.exclusive("A")
			up.refused(store.ErrUpgrade)
			b.release()
			up.hold()
		},
	},
	{
		name: "past a waiting writer",
		says: "granted with a new token if no other owner has a hold", needs: fair,
		run: func(h *harness) {
			h.shared("A").hold()
			w := h.exclusive("W")
			w.queue()
			h.exclusive("A").hold()
			h.wantQueue(w)
		},
	},
	{
		name: "refused place is given up",
		says: saysUpgrade, needs: fair,
		run: func(h *harness) {
			_, _, up := h.waitingUpgrade()
			h.wantQueue(up)
			up.refused(store.ErrUpgrade)
			up.releaseLost()
		},
	},
	{
		name: "refused place is given up without Queue",
		says: saysUpgrade, needs: fair,
		run: func(h *harness) {
			_, _, up := h.waitingUpgrade()
			up.impatient().refused(store.ErrUpgrade)
			up.releaseLost()
		},
	},
	{
		name: "shared hold keeps its token",
		says: "The answer is the same, with the same token",
		run: func(h *harness) {
			read, up := h.shared("A"), h.exclusive("A")
			token := read.hold().Token
			up.hold()
			read.wantReentry(token, 2)
		},
	},
	{
		name: "place given up promotes",
		says: "Every removal promotes. The removals are a release, a place given up", needs: fair,
		run: func(h *harness) {
			_, _, up := h.waitingUpgrade()
			r := h.shared("R")
			r.queue()
			up.refused(store.ErrUpgrade)
			h.wake(r)
		},
	},
	{
		name: "exclusive gone, shared stays",
		says: "a downgrade: an exclusive hold is released while its owner keeps shared holds",
		run: func(h *harness) {
			h.shared("A").hold()
			up := h.exclusive("A")
			up.hold()
			up.release()
			h.exclusive("B").refused(store.ErrHeld)
			h.shared("B").hold()
		},
	},
	{
		name: "second upgrade is a re-entry",
		says: saysReentry,
		run: func(h *harness) {
			h.shared("A").hold()
			token := h.exclusive("A").hold().Token
			h.exclusive("A").wantReentry(token, 3)
			h.shared("A").wantReentry(token, 4)
		},
	},
}

// waitingUpgrade gives A and B shared holds while an exclusive request of A
// waits, which is how an upgrade can have a place: it took it before A held.
func (h *harness) waitingUpgrade() (a, b, up *claim) {
	c := h.exclusive("C")
	a, b, up = h.shared("A"), h.shared("B"), h.exclusive("A")
	c.hold()
	b.queue()
	a.queue()
	up.queue()
	c.release()
	return a, b, up
}
