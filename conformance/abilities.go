package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/dlock-go/dlock/store"
)

const (
	saysBreak = "Break removes all live holds of a name, promotes waiters and returns how many holds it removed. The next grant has a greater token ... The old holder learns of it with its next renewal."
	saysList  = "List returns the names that have live holds or waiters, in no order."
)

// Optional interfaces.
var abilityCases = []testCase{
	{
		name: "Break frees",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			a1, a2 := h.exclusive("A"), h.shared("A")
			a1.hold()
			token := a2.hold().Token
			h.wantBroken(h.name, 2)
			h.exclusive("B").wantToken(token + 1)
		},
	},
	{
		name: "Break tells the holder",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			h.wantBroken(h.name, 1)
			a.renewLost()
			a.releaseLost()
		},
	},
	{
		name: "Break readers",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			h.shared("A").hold()
			h.shared("B").hold()
			h.wantBroken(h.name, 2)
			h.exclusive("W").hold()
		},
	},
	{
		name: "Break promotes",
		says: saysBreak, needs: breaker | fair,
		run: func(h *harness) {
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1"), h.exclusive("W2")
			token := a.hold().Token
			w1.queue()
			w2.queue()
			h.wantBroken(h.name, 1)
			if got := h.wake(w1); got <= token {
				h.failf(fmtToken("more than", token), "token %d", got)
			}
			h.wantHolders(w1)
			h.wantQueue(w2)
		},
	},
	{
		name: "Break ends no burial",
		says: saysBury, needs: breaker,
		run: func(h *harness) {
			a, late := h.exclusive("A"), h.exclusive("B")
			late.buryAbsent()
			a.hold()
			h.wantBroken(h.name, 1)
			late.refused(store.ErrLost)
		},
	},
	{
		name: "Break a free name",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			h.wantBroken(h.name, 0)
			h.exclusive("A").hold()
		},
	},
	{
		name: "Break one name only",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.exclusive("A").on(h.name + "/other").hold()
			h.wantBroken(h.name, 1)
			h.exclusive("B").on(h.name + "/other").refused(store.ErrHeld)
		},
	},
	{
		name: "Break counts the living",
		says: saysBreak, needs: breaker,
		run: func(h *harness) {
			h.shared("A").hold()
			h.shared("B").lease(h.ttl).hold()
			h.after(h.last, h.ttl)
			h.wantBroken(h.name, 1)
		},
	},
	{
		name: "List names in use",
		says: saysList, needs: lister | alone,
		run: func(h *harness) {
			held, odd, freed := h.exclusive("A"), h.shared("A").on(h.name+"/{\x00\xff\n}"), h.exclusive("A").on(h.name+"/freed")
			held.hold()
			odd.hold()
			freed.hold()
			freed.release()
			h.exclusive("A").on(h.name + "/buried").buryAbsent()
			h.wantListed(held.req.Name, true)
			h.wantListed(odd.req.Name, true)
			h.wantListed(freed.req.Name, false)
			h.wantListed(h.name+"/buried", false)
		},
	},
	{
		name: "List the living",
		says: saysList, needs: lister | alone,
		run: func(h *harness) {
			h.exclusive("A").lease(h.ttl).hold()
			h.after(h.last, h.ttl)
			h.wantListed(h.name, false)
		},
	},
	{
		name: "List what is waited for",
		says: saysList, needs: lister | fair | alone,
		run: func(h *harness) {
			h.exclusive("A").lease(h.ttl).hold()
			held := h.last
			h.rely(held, h.ttl)
			h.exclusive("W").queue()
			h.after(held, h.ttl)
			h.wantListed(h.name, true)
		},
	},
	{
		name: "List each once",
		says: saysList, needs: lister | fair | alone,
		run: func(h *harness) {
			h.shared("A").hold()
			h.shared("B").hold()
			h.exclusive("W").queue()
			if n := len(h.list()); n != 1 {
				h.fail("List()", fmt.Sprintf("the name %d times", n), "once")
			}
		},
	},
}

func (h *harness) wantBroken(name string, want int) {
	var n int
	var err error
	end := h.traceCall(func() string { return "Break" }, func() string { return fmt.Sprintf("%d, %s", n, describeError(err)) })
	n, err = h.main.(store.Breaker).Break(h.ctx, name)
	end()
	endIfUnsupported(err)
	if n != want || err != nil {
		h.fail("Break", fmt.Sprintf("%d, %s", n, describeError(err)), fmt.Sprintf("%d, nil", want))
	}
}

// endIfUnsupported ends the case if a wrapper says that its store lacks the ability.
func endIfUnsupported(err error) {
	if errors.Is(err, store.ErrUnsupported) {
		runtime.Goexit()
	}
}

// list is what List returns of the case's own names; others use the store too.
func (h *harness) list() (own []string) {
	names, err := h.main.(store.Lister).List(h.ctx)
	endIfUnsupported(err)
	if err != nil {
		h.fail("List()", describeError(err), "nil")
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return len(name) < len(h.name) || name[:len(h.name)] != h.name
	})
}

func (h *harness) wantListed(name string, want bool) {
	if own := h.list(); slices.Contains(own, name) != want {
		h.fail("List()", fmt.Sprintf("%q", own), fmt.Sprintf("%q among them: %v", name, want))
	}
}
