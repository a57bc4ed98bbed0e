package conformance

import (
	"fmt"

	"github.com/dlock-go/dlock/store"
)

const (
	saysRaise       = "RaiseToken makes token the token of the live hold with ref.ID, reserves that many consecutive tokens from it on, and returns the token that the hold has then. Every later grant of the name has a greater token than that span."
	saysRaiseKeeps  = "Repeating it is harmless: a hold that has the token, or a greater one, keeps what it has."
	saysRaiseShared = "No two shared holds are given the same token. A shared hold gets token if that is greater than every token issued so far, and otherwise a new token, greater than both."
	saysRaiseSome   = "An owner that takes the lock again gets the token of its exclusive hold, or the greatest token of its shared holds."
	saysRaiseLost   = "ErrLost says that there is no such hold. Nothing else of the hold changes, and its lease stays as it is."
	saysIncarnation = "Incarnation names the present life of the store's data, the same for all handles."
)

// What the quorum store needs of its nodes.
var raisingCases = []testCase{
	{
		name: "raised",
		says: saysRaise, needs: raiser | alone,
		run: func(h *harness) {
			for _, a := range []*claim{h.exclusive("A"), h.shared("A").on(h.name + "/shared")} {
				token := a.hold().Token + 1000
				a.wantRaised(token, 1, token)
				a.wantReentry(token, 1)
				h.wantEntry(h.inspect(a.req.Name).Holders, a, token)
				h.claim("A", a.req.Mode).on(a.req.Name).wantReentry(token, 2)
			}
		},
	},
	{
		name: "one of several holds raised",
		says: saysRaiseSome, needs: raiser | alone,
		run: func(h *harness) {
			for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
				first, second := h.claim("A", mode).on(h.name+"/"+mode.String()), h.claim("A", mode).on(h.name+"/"+mode.String())
				token := first.hold().Token
				second.wantReentry(token, 2)
				first.wantRaised(token+1000, 1, token+1000)
				h.claim("A", mode).on(first.req.Name).wantReentry(token+1000, 3)
			}
		},
	},
	{
		name: "later grants are greater",
		says: saysRaise, needs: raiser | alone,
		run: func(h *harness) {
			for _, a := range []*claim{h.exclusive("A"), h.shared("A")} {
				token := a.hold().Token + 1000
				a.wantRaised(token, 1, token)
				a.release()
				b := h.exclusive("B")
				b.wantToken(token + 1)
				b.release()
			}
		},
	},
	{
		name: "span",
		says: saysRaise, needs: raiser | alone,
		run: func(h *harness) {
			for _, a := range []*claim{h.exclusive("A"), h.shared("A")} {
				token := a.hold().Token + 1000
				a.wantRaised(token, spanned, token)
				a.release()
				b := h.exclusive("B")
				b.wantToken(token + spanned)
				b.release()
			}
		},
	},
	{
		name: "span across the counter",
		says: saysRaise, needs: raiser,
		run: func(h *harness) {
			a := h.exclusive("A").tokens(spanned)
			token := a.hold().Token + spanned/2
			a.wantRaised(token, spanned, token)
			a.release()
			h.exclusive("B").wantToken(token + spanned)
		},
	},
	{
		name: "repeated",
		says: saysRaiseKeeps, needs: raiser | alone,
		run: func(h *harness) {
			for _, a := range []*claim{h.exclusive("A"), h.shared("A").on(h.name + "/shared")} {
				token := a.hold().Token + 1000
				a.wantRaised(token, 1, token)
				a.wantRaised(token, 1, token)
				a.wantRaised(token-1, 1, token)
				a.wantReentry(token, 1)
			}
		},
	},
	{
		name: "shared holds stay apart",
		says: saysRaiseShared, needs: raiser | alone,
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			token := b.hold().Token + 1000
			b.wantRaised(token, spanned, token)
			if got := a.raise(token, 1); got < token+spanned {
				h.fail("RaiseToken", fmtToken("", got), fmtToken("not less than", token+spanned))
			}
			b.wantReentry(token, 1)
		},
	},
	{
		name: "exclusive beside other names",
		says: saysRaise, needs: raiser,
		run: func(h *harness) {
			// A counter may serve many names, and tokens of others are in nobody's way.
			a := h.exclusive("A")
			token := a.hold().Token + 5
			h.exclusive("B").on(h.name + "/other").tokens(spanned).hold()
			a.wantRaised(token, 1, token)
			a.wantReentry(token, 1)
		},
	},
	{
		name: "no hold",
		says: saysRaiseLost, needs: raiser,
		run: func(h *harness) {
			h.exclusive("A").wantRaiseLost()
			a, b := h.exclusive("A"), h.exclusive("A").lease(h.ttl).on(h.name+"/expired")
			a.hold()
			h.exclusive("A").wantRaiseLost()
			a.release()
			a.wantRaiseLost()
			b.hold()
			h.after(h.last, h.ttl)
			b.wantRaiseLost()
		},
	},
	{
		name: "place is no hold",
		says: saysRaiseLost, needs: raiser | fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W")
			w.queue()
			w.wantRaiseLost()
		},
	},
	{
		name: "lease stays",
		says: saysRaiseLost, needs: raiser,
		run: func(h *harness) {
			a := h.exclusive("A").lease(2 * h.ttl)
			token := a.hold().Token
			lease := h.last
			h.sleep(h.ttl)
			h.rely(lease, 2*h.ttl)
			a.wantRaised(token+10, 1, token+10)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").wantToken(token + 11)
		},
	},
	{
		name: "one life",
		says: saysIncarnation, needs: incarnator | peer,
		run: func(h *harness) {
			first := h.life(h.main)
			h.exclusive("A").hold()
			if again, other := h.life(h.main), h.life(h.other); first == "" || again != first || other != first {
				h.failf("the same, which is not empty", "%q, then %q and %q", first, again, other)
			}
		},
	},
}

// raise calls RaiseToken and wants a token.
func (c *claim) raise(token uint64, tokens int) uint64 {
	got, err := c.tryRaise(token, tokens)
	if err != nil {
		c.h.fail(c.raising(token), describeError(err), "a token")
	}
	return got
}

func (c *claim) raising(token uint64) string {
	return fmt.Sprintf("RaiseToken(%s, %d)", describeRef(c.ref()), token)
}

func (c *claim) tryRaise(token uint64, tokens int) (got uint64, err error) {
	end := c.h.traceCall(func() string { return c.raising(token) }, func() string { return fmt.Sprintf("%d, %s", got, describeError(err)) })
	got, err = c.via.(store.TokenRaiser).RaiseToken(c.h.ctx, c.ref(), token, tokens)
	end()
	return got, err
}

func (c *claim) wantRaised(token uint64, tokens int, want uint64) {
	if got := c.raise(token, tokens); got != want {
		c.h.fail(c.raising(token), fmt.Sprint(got), fmt.Sprint(want))
	}
}

func (c *claim) wantRaiseLost() {
	if got, err := c.tryRaise(1<<40, 1); !isLost(err) {
		c.h.fail(c.raising(1<<40), fmt.Sprintf("%d, %s", got, describeError(err)), "ErrLost")
	}
}

func (h *harness) life(s store.Store) string {
	id, age, err := s.(store.Incarnator).Incarnation(h.ctx)
	if err != nil || age < 0 {
		h.fail("Incarnation()", fmt.Sprintf("age %v, %s", age, describeError(err)), "nil and no negative age")
	}
	return id
}
