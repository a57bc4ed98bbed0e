package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/store"
)

const saysShort = "Errors, logs and State carry at most the first six characters of an id or owner, and no secret."

const saysAge = "Age time.Duration // since it was granted, or queued as a waiter; 0 if the store does not know"

var inspectCases = []testCase{
	{
		name: "free name",
		says: "A free name is an empty State, not an error.",
		run: func(h *harness) {
			h.wantFree(h.name)
			a := h.exclusive("A")
			a.hold()
			a.release()
			h.wantFree(h.name)
		},
	},
	{
		name: "holder",
		says: "Entry is one holder or waiter. ID and Owner are cut to their first six characters",
		run: func(h *harness) {
			a := h.exclusive("A")
			token := a.hold().Token
			b := h.shared("B").on(h.name + "/b")
			tokenB := b.hold().Token
			h.wantEntry(h.inspect(h.name).Holders, a, token)
			h.wantEntry(h.inspect(b.req.Name).Holders, b, tokenB)
		},
	},
	{
		name: "waiter",
		says: "Token uint64 // of a holder, the first of those that it reserved; 0 for a waiter", needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.shared("W").lease(2 * h.long)
			w.queue()
			h.wantEntry(h.inspect(h.name).Queue, w, 0)
		},
	},
	{
		name: "oldest grant first",
		says: "Holders []Entry // oldest grant first",
		run: func(h *harness) {
			a, b, c := h.shared("A"), h.shared("B"), h.shared("C")
			for _, x := range []*claim{a, b, c} {
				x.hold()
			}
			a.renew(2 * h.long)
			h.same("holders", h.inspect(h.name).Holders, []*claim{a, b, c}, true)
			b.release()
			b2 := h.shared("B")
			b2.hold()
			h.same("holders", h.inspect(h.name).Holders, []*claim{a, c, b2}, true)
		},
	},
	{
		name: "promoted is no waiter",
		says: "A promoted waiter becomes a hold", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			token := w.hold().Token
			h.wantEntry(h.inspect(h.name).Holders, w, token)
			h.wantQueue()
		},
	},
	{
		name: "remaining",
		says: "Remaining time.Duration // until its deadline",
		run: func(h *harness) {
			a := h.exclusive("A").lease(4 * h.ttl)
			a.hold()
			lease := h.last
			h.sleep(2 * h.ttl)
			h.rely(lease, 4*h.ttl)
			holders := h.inspect(h.name).Holders
			if len(holders) != 1 || holders[0].Remaining <= 0 || holders[0].Remaining > 2*h.ttl+h.lag {
				h.failf(fmt.Sprintf("one holder, with more than 0 and at most %v remaining", 2*h.ttl+h.lag), "%+v", holders)
			}
		},
	},
	{
		name: "age",
		says: saysAge,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.long)
			sent := h.now()
			a.hold()
			answered := h.now()
			h.sleep(h.ttl)
			a.renew(h.long)
			h.sleep(h.ttl)
			asked := h.now()
			for _, e := range h.inspect(h.name).Holders {
				h.wantAge(e.Age, asked-answered, h.now()-sent)
			}
			for _, b := range []*claim{h.exclusive("B"), h.shared("C").waiting()} {
				asked := h.now()
				g, _ := b.ask()
				h.wantAge(g.HeldFor, asked-answered, h.now()-sent)
			}
		},
	},
	{
		name: "age of a waiter",
		says: saysAge, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A").lease(h.long), h.exclusive("W").waitTTL(h.long)
			a.hold()
			sent := h.now()
			w.queue()
			answered := h.now()
			h.sleep(h.ttl)
			w.queue()
			h.sleep(h.ttl)
			asked := h.now()
			for _, e := range h.inspect(h.name).Queue {
				h.wantAge(e.Age, asked-answered, h.now()-sent)
			}

			sent = h.now()
			a.release()
			answered = h.now()
			h.sleep(h.ttl)
			asked = h.now()
			for _, e := range h.inspect(h.name).Holders {
				h.wantAge(e.Age, asked-answered, h.now()-sent)
			}
		},
	},
	{
		name: "expired",
		says: "Inspect reports the live holders and the queue of one name",
		run: func(h *harness) {
			h.exclusive("A").lease(h.ttl).hold()
			h.after(h.last, h.ttl)
			h.wantFree(h.name)
		},
	},
	{
		name: "last token",
		says: "last token issued, by a counter that may serve other names too",
		run: func(h *harness) {
			a := h.exclusive("A").tokens(3)
			a.hold()
			if s := h.inspect(h.name); s.Token < a.behind()-1 {
				h.failf(fmtToken("not less than", a.behind()-1), "State.Token %d", s.Token)
			}
		},
	},
	{
		name: "last token is not ahead",
		says: "last token issued, by a counter that may serve other names too",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			last := h.inspect(h.name).Token
			a.release()
			h.exclusive("B").wantToken(last + 1)
		},
	},
	{
		name: "shows no whole id",
		says: saysShort,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			h.wantNoSecret(h.inspect(h.name), a)
		},
	},
	{
		name: "shows no whole id of a waiter",
		says: saysShort, needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W")
			w.queue()
			h.wantNoSecret(h.inspect(h.name), w)
		},
	},
	{
		name: "errors show no whole id",
		says: saysShort,
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			b.hold()
			w := h.exclusive("W")
			_, held := w.ask()
			up := h.exclusive("A")
			_, upgrade := up.ask()
			lost := up.giveUp(false)
			buried := up.giveUp(true)
			_, late := up.ask()
			renewed := h.renew(up.ref())[0]
			for _, err := range []error{held, upgrade, lost, buried, late, renewed} {
				h.wantNoSecret(err, a, b, up, w)
			}
		},
	},
	{
		name: "changes nothing",
		says: "Inspect reports the live holders and the queue of one name, for people and tests.",
		run: func(h *harness) {
			a := h.exclusive("A").lease(2 * h.ttl)
			a.hold()
			lease := h.last
			h.sleep(h.ttl)
			h.inspect(h.name)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
}

// wantFree wants the state of a name that is not in use.
func (h *harness) wantFree(name string) {
	if s := h.inspect(name); s.Name != name || len(s.Holders) != 0 || len(s.Queue) != 0 {
		h.fail(fmt.Sprintf("Inspect(%.40q)", name), fmt.Sprintf("%+v", s), "an empty State with that name")
	}
}

// wantEntry wants c as the only entry, with all that belongs in one.
func (h *harness) wantEntry(entries []store.Entry, c *claim, token uint64) {
	remaining := c.req.TTL
	if token == 0 {
		remaining = c.req.WaitTTL
	}
	if len(entries) == 1 {
		e := entries[0]
		if store.Short(e.ID) == store.Short(c.req.ID) && store.Short(e.Owner) == store.Short(c.req.Owner) &&
			e.Mode == c.req.Mode && e.Token == token && e.Label == c.req.Label &&
			e.Remaining > 0 && e.Remaining <= remaining+h.lag {
			return
		}
	}
	h.fail("Inspect", fmt.Sprintf("%+v", entries),
		fmt.Sprintf("%v with token %d, label %q and at most %v remaining", c, token, c.req.Label, remaining))
}

// wantAge wants an age between the two, as the store's clock may tell it, or none.
func (h *harness) wantAge(age, least, most time.Duration) {
	if age != 0 && (age < least-h.lag || age > most+h.lag) {
		h.failf(fmt.Sprintf("an age of %v to %v, or 0", least-h.lag, most+h.lag), "%v", age)
	}
}

// wantNoSecret wants that v, printed, has no more than six characters of the
// ids and owners of the claims.
func (h *harness) wantNoSecret(v any, claims ...*claim) {
	text := fmt.Sprintf("%+v", v)
	for _, c := range claims {
		for _, secret := range []string{c.req.ID, c.req.Owner} {
			found := strings.Contains(text, secret[:7])
			for i := 1; i+12 <= len(secret); i++ { // or another part
				found = found || strings.Contains(text, secret[i:i+12])
			}
			if found {
				h.failf("at most "+store.Short(secret), "%s", strings.ReplaceAll(text, secret[7:], "..."))
			}
		}
	}
}
