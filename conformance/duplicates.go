package conformance

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/store"
)

const saysIdempotent = "Every operation is idempotent by id. A request that arrives twice, or late, changes nothing that the first arrival would not have changed"

// copies is how often a call arrives in the cases about duplicates.
const copies = 8

// together runs n copies of f at once and waits for them.
func (h *harness) together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			defer h.recovered("case")
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
	h.stopIfFailed()
}

// copy is the same request on its way a second time.
func (c *claim) copy() *claim {
	d := *c
	return &d
}

var duplicateCases = []testCase{
	{
		name: "Acquire granted",
		says: saysIdempotent,
		run: func(h *harness) {
			a := h.exclusive("A")
			tokens := make([]uint64, copies)
			h.together(copies, func(i int) {
				d := a.copy()
				if d.hold().Holds != 1 {
					d.wrong("holds=1")
				}
				tokens[i] = d.grant.Token
			})
			for _, token := range tokens {
				if token != tokens[0] {
					h.failf("one token for one id", "tokens %v", tokens)
				}
			}
			h.wantHolders(a)
			a.release()
			h.exclusive("B").hold()
		},
	},
	{
		name: "Acquire queued",
		says: saysIdempotent, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			h.together(copies, func(int) {
				d := w.copy()
				if d.queue().Position != 1 {
					d.wrong("position=1")
				}
			})
			h.wantQueue(w)
			w.release()
			h.wantQueue()
		},
	},
	{
		name: "Acquire of an upgrade",
		says: saysIdempotent,
		run: func(h *harness) {
			h.shared("A").hold()
			up := h.exclusive("A")
			token := up.hold().Token
			up.wantReentry(token, 2)
		},
	},
	{
		name: "Acquire of a re-entry",
		says: saysIdempotent,
		run: func(h *harness) {
			outer, inner := h.exclusive("A"), h.shared("A")
			token := outer.hold().Token
			inner.wantReentry(token, 2)
			inner.wantReentry(token, 2)
			inner.release()
			outer.wantReentry(token, 1)
		},
	},
	{
		name: "Acquire of an upgrade refused",
		says: saysIdempotent,
		run: func(h *harness) {
			a, b := h.shared("A"), h.shared("B")
			a.hold()
			b.hold()
			up := h.exclusive("A").waiting()
			up.refused(store.ErrUpgrade)
			up.refused(store.ErrUpgrade)
			h.wantHolders(a, b)
		},
	},
	{
		name: "Release",
		says: "ErrLost says that there was none, which is what a repeated Release meets.",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			var released atomic.Int32
			h.together(copies, func(int) {
				switch err := a.copy().giveUp(false); {
				case err == nil:
					released.Add(1)
				case !isLost(err):
					h.fail("Release("+describeRef(a.ref())+")", describeError(err), "nil or ErrLost")
				}
			})
			if n := released.Load(); n != 1 {
				h.failf("nil once, ErrLost else", "nil %d times", n)
			}
		},
	},
	{
		name: "Release promotes once",
		says: saysIdempotent, needs: fair,
		run: func(h *harness) {
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1"), h.exclusive("W2")
			a.hold()
			w1.queue()
			w2.queue()
			h.together(copies, func(int) { a.copy().giveUp(false) })
			h.wantHolders(w1)
			h.wantQueue(w2)
		},
	},
	{
		name: "Release with Bury",
		says: saysIdempotent,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			h.together(copies, func(int) { a.copy().giveUp(true) })
			a.refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
	{
		name: "Renew",
		says: saysIdempotent,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			h.together(copies, func(int) { a.copy().renew(h.long) })
			if errs := h.renew(a.ref(), a.ref()); errs[0] != nil || errs[1] != nil {
				h.fail("Renew(the same hold twice)", describeErrors(errs), "[nil, nil]")
			}
			h.wantHolders(a)
		},
	},
	{
		name: "late Acquire after Release with Bury",
		says: "except that after a Release with Bury it cannot be granted at all",
		run: func(h *harness) {
			// Whichever arrives first, the id holds nothing in the end.
			for i := range h.rounds(150) {
				a := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i))
				arrive := func(late bool) {
					if late {
						a.copy().giveUp(true)
					} else {
						a.copy().ask()
					}
				}
				if i < 2 {
					arrive(i == 0)
					arrive(i == 1)
				} else {
					h.together(2, func(j int) { arrive(j == i%2) })
				}
				a.refused(store.ErrLost)
				h.wantFree(a.req.Name)
			}
		},
	},
	{
		name: "Break",
		says: "Break removes all live holds of a name, promotes waiters and returns how many holds it removed.", needs: breaker,
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.wantBroken(h.name, 1)
			h.exclusive("B").hold()
			h.wantBroken(h.name, 1)
			h.wantBroken(h.name, 0)
		},
	},
}
