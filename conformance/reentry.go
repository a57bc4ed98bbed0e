package conformance

import "github.com/dlock-go/dlock/store"

const (
	saysReentry   = "The owner has a live hold: this is a re-entry. If a hold of the owner is exclusive, the request is granted in either mode, with the token of that hold."
	saysReentryRO = "If all are shared and the request asks for Shared, it is granted with their greatest token, even past waiting writers."
)

// wantReentry wants c granted with the token and as the n-th hold.
func (c *claim) wantReentry(token uint64, n int) {
	g := c.hold()
	if g.Token != token || g.Holds != n {
		c.wrong("token=%d holds=%d", token, n)
	}
}

// reenterThoughItMayWait re-enters by requests that may wait, alone and past a
// waiting writer.
func (h *harness) reenterThoughItMayWait(claim func(label string) *claim) {
	token := claim("A").hold().Token
	inner := claim("A").waiting()
	inner.wantReentry(token, 2)
	inner.release()
	w := h.exclusive("W")
	w.queue()
	claim("A").waiting().wantReentry(token, 2)
	h.wantQueue(w)
}

var reentryCases = []testCase{
	{
		name: "reserves no tokens",
		says: "is how many of the Tokens asked for are not reserved from Token on, or may not be: 0 to Tokens-1",
		run: func(h *harness) {
			outer, inner := h.exclusive("A"), h.exclusive("A").tokens(spanned)
			outer.hold()
			inner.hold()
			behind := inner.behind()
			inner.release()
			outer.release()
			h.exclusive("B").wantToken(behind)
		},
	},
	{
		name: "exclusive under exclusive",
		says: saysReentry,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			h.exclusive("A").wantReentry(token, 2)
			h.exclusive("A").waiting().wantReentry(token, 3)
		},
	},
	{
		name: "shared under exclusive",
		says: saysReentry,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			h.shared("A").wantReentry(token, 2)
			h.shared("A").waiting().wantReentry(token, 3)
		},
	},
	{
		name: "exclusive under both",
		says: saysReentry,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			h.shared("A").hold()
			h.exclusive("A").wantReentry(token, 3)
		},
	},
	{
		name: "shared under shared",
		says: saysReentryRO,
		run: func(h *harness) {
			token := h.shared("A").hold().Token
			h.shared("A").wantReentry(token, 2)
		},
	},
	{
		name: "shared beside other readers",
		says: saysReentryRO,
		run: func(h *harness) {
			token := h.shared("A").hold().Token
			h.shared("B").hold()
			h.shared("A").wantReentry(token, 2)
		},
	},
	{
		name: "greatest token",
		says: saysReentryRO,
		run: func(h *harness) {
			// Shared holds of one owner differ in token once it has upgraded
			// between them.
			h.shared("A").hold()
			up := h.exclusive("A")
			upgraded := up.hold().Token
			h.shared("A").hold()
			up.release()
			h.shared("A").wantReentry(upgraded, 3)
		},
	},
	{
		name: "past a waiting writer",
		says: saysReentryRO, needs: fair,
		run: func(h *harness) {
			token := h.shared("A").hold().Token
			w := h.exclusive("W")
			w.queue()
			h.shared("A").wantReentry(token, 2)
			h.wantQueue(w)
		},
	},
	{
		name: "exclusive that may wait",
		says: saysReentry, needs: fair,
		run: func(h *harness) { h.reenterThoughItMayWait(h.exclusive) },
	},
	{
		name: "shared that may wait",
		says: saysReentryRO, needs: fair,
		run: func(h *harness) { h.reenterThoughItMayWait(h.shared) },
	},
	{
		name: "exclusive past waiters",
		says: saysReentry, needs: fair,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			w := h.shared("W")
			w.queue()
			h.exclusive("A").wantReentry(token, 2)
			h.shared("A").wantReentry(token, 3)
			h.wantQueue(w)
		},
	},
	{
		name: "every hold is released",
		says: "Release gives up a hold ... It finds the entry by ID and compares nothing weaker.",
		run: func(h *harness) {
			outer, inner := h.exclusive("A"), h.exclusive("A")
			outer.hold()
			inner.hold()
			outer.release()
			h.exclusive("B").refused(store.ErrHeld)
			inner.release()
			h.exclusive("B").hold()
		},
	},
	{
		name: "strangers stay out",
		says: "Exclusive excludes every other owner.",
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.shared("A").hold()
			h.shared("B").refused(store.ErrHeld)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "other names are other locks",
		says: "For each name a store keeps its live holds",
		run: func(h *harness) {
			a := h.exclusive("A").hold()
			other := h.exclusive("A").on(h.name + "/other")
			if g := other.hold(); g.Holds != 1 {
				other.wrong("holds=1, for its other hold is of another name")
			} else if g.Token == a.Token {
				h.notef("tokens of different names may be equal")
			}
			h.exclusive("B").on(h.name + "/other").refused(store.ErrHeld)
		},
	},
}
