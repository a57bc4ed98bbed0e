package conformance

import (
	"fmt"

	"github.com/dlock-go/dlock/store"
)

const (
	saysToken = "A new token is greater than every token of that name before it."
	saysSpan  = "how many consecutive tokens a new token reserves, less Grant.Short; Grant.Token is the first"
)

// spanned is how many tokens the cases about spans reserve.
const spanned = 100

// wantToken asks for the hold and wants a token of at least this.
func (c *claim) wantToken(atLeast uint64) uint64 {
	if c.hold().Token < atLeast {
		c.wrong("token=%d or greater", atLeast)
	}
	return c.grant.Token
}

var tokenCases = []testCase{
	{
		name: "grow with each grant",
		says: saysToken,
		run: func(h *harness) {
			var last uint64
			for i := range 20 {
				c := h.claim([]string{"A", "B", "C"}[i%3], store.Mode(i%2))
				last = c.wantToken(last + 1)
				c.release()
			}
		},
	},
	{
		name: "grow after expiry",
		says: saysToken,
		run: func(h *harness) {
			token := h.exclusive("A").lease(h.ttl).hold().Token
			h.after(h.last, h.ttl)
			h.exclusive("B").wantToken(token + 1)
		},
	},
	{
		name: "readers have their own",
		says: saysToken,
		run: func(h *harness) {
			var last uint64
			for _, label := range []string{"A", "B", "C"} {
				last = h.shared(label).wantToken(last + 1)
			}
		},
	},
	{
		name: "readers promoted together have their own",
		says: saysToken, needs: fair,
		run: func(h *harness) {
			a, r1, r2 := h.exclusive("A"), h.shared("R1"), h.shared("R2")
			token := a.hold().Token
			r1.queue()
			r2.queue()
			a.release()
			first := r1.wantToken(token + 1)
			r2.wantToken(first + 1)
		},
	},
	{
		name: "grow with each promotion",
		says: saysToken, needs: fair,
		run: func(h *harness) {
			holder := h.exclusive("A")
			last := holder.hold().Token
			for range 5 {
				w := h.exclusive("W")
				w.req.Owner += w.req.ID[:6]
				w.queue()
				holder.release()
				last = w.wantToken(last + 1)
				holder = w
			}
		},
	},
	{
		name: "span",
		says: saysSpan,
		run: func(h *harness) {
			a := h.exclusive("A").tokens(spanned)
			a.hold()
			a.release()
			h.exclusive("B").wantToken(a.behind())
		},
	},
	{
		name: "span of a shared hold",
		says: saysSpan,
		run: func(h *harness) {
			a := h.shared("A").tokens(spanned)
			a.hold()
			h.shared("B").wantToken(a.behind())
		},
	},
	{
		name: "span of a promoted hold",
		says: saysSpan, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").tokens(spanned)
			a.hold()
			w.queue()
			a.release()
			w.hold()
			w.release()
			h.exclusive("B").wantToken(w.behind())
		},
	},
	{
		name: "span that an event tells of",
		says: "With an ID and a Token: that request was granted, with that token. ... how many of the Tokens asked for were not reserved", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").tokens(spanned)
			a.hold()
			w.queue()
			a.release()
			e, ok := h.await(w.req.ID, 0, h.patience())
			if !ok {
				return
			}
			if e.Short < 0 || e.Short >= spanned {
				h.fail("(an event)", fmt.Sprintf("Short=%d", e.Short), "Short is 0 to Tokens-1")
			}
			w.release()
			h.exclusive("B").wantToken(e.Token + uint64(spanned-e.Short))
		},
	},
	{
		name: "span of an upgrade",
		says: saysSpan,
		run: func(h *harness) {
			read, up := h.shared("A"), h.exclusive("A").tokens(spanned)
			read.hold()
			up.hold()
			up.release()
			read.release()
			h.exclusive("B").wantToken(up.behind())
		},
	},
	{
		name: "span counts as issued",
		says: "Queued: the last token issued for this name so far", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A").tokens(spanned), h.exclusive("W")
			a.hold()
			if w.queue().Token < a.behind()-1 {
				w.wrong("a token not less than %d, the last of the holder's callTime", a.behind()-1)
			}
		},
	},
	{
		name: "kept over repeats",
		says: "The answer is the same, with the same token, so repeating a request is harmless.",
		run: func(h *harness) {
			a := h.exclusive("A")
			token := a.hold().Token
			for range 3 {
				h.exclusive("B").refused(store.ErrHeld)
			}
			a.wantReentry(token, 1)
		},
	},
}
