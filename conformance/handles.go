package conformance

import (
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/store"
)

const saysHandles = "A Store value is one handle on the locks, such as one process has. Two handles on the same locks see each other's holds."

var handleCases = []testCase{
	{
		name: "exclude each other",
		says: saysHandles, needs: peer,
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.exclusive("B").through(h.other).refused(store.ErrHeld)
		},
	},
	{
		name: "share the order of tokens",
		says: saysToken, needs: peer,
		run: func(h *harness) {
			var last uint64
			for i := range 10 {
				c := h.exclusive("A").through([]store.Store{h.main, h.other}[i%2])
				last = c.wantToken(last + 1)
				c.release()
			}
		},
	},
	{
		name: "share the queue",
		says: "a first-in-first-out queue of live waiters", needs: fair | peer,
		run: func(h *harness) {
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1").through(h.other), h.exclusive("W2")
			a.hold()
			w1.queue()
			w2.queue()
			a.release()
			h.wake(w1)
			h.wantQueue(w2)
			w1.release()
			h.wake(w2)
		},
	},
	{
		name: "re-entry from another process",
		says: saysReentry, needs: peer | common,
		run: func(h *harness) {
			token := h.exclusive("A").hold().Token
			inner := h.exclusive("A").through(h.other)
			inner.wantReentry(token, 2)
			inner.release()
			h.exclusive("B").through(h.other).refused(store.ErrHeld)
		},
	},
	{
		name: "release through another",
		says: saysRelease, needs: peer | common,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.through(h.other).release()
			h.exclusive("B").hold()
		},
	},
	{
		name: "renew through another",
		says: "It finds holds by ID", needs: peer | common,
		run: func(h *harness) {
			a := h.exclusive("A").through(h.other).lease(2 * h.ttl)
			a.hold()
			first := h.last
			h.rely(first, 2*h.ttl)
			a.renew(h.long) // through h.main
			h.after(first, 2*h.ttl)
			h.rely(callTime{}, h.long)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "close twice",
		says: "Closing twice is fine.",
		run: func(h *harness) {
			h.close(h.main)
			h.close(h.main)
		},
	},
	{
		name: "close among calls",
		says: "All methods are safe for concurrent use.", needs: twoHandles,
		run: func(h *harness) {
			h.together(8, func(i int) {
				if i < 2 {
					if err := h.other.Close(); err != nil {
						h.fail("Close()", describeError(err), "nil")
					}
					return
				}
				for j := range 10 {
					h.exclusive("A").on(fmt.Sprintf("%s/%d/%d", h.name, i, j)).through(h.other).ask()
					h.other.Listen(func(store.Event) {})()
				}
			})
		},
	},
	{
		name: "close leaves holds",
		says: "Holds are left to their leases.", needs: twoHandles,
		run: func(h *harness) {
			a := h.exclusive("A").through(h.other).lease(2 * h.ttl)
			a.hold()
			lease := h.last
			h.rely(lease, 2*h.ttl)
			h.close(h.other)
			h.before(lease, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
			h.after(lease, 2*h.ttl)
			h.exclusive("B").hold()
		},
	},
	{
		name: "close drops sinks",
		says: "Close ends this handle. It closes what the handle opened itself and drops the sinks.", needs: fair | twoHandles,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").through(h.other)
			a.hold()
			w.queue()
			h.close(h.other)
			a.release()
			h.quiet()
			h.mu.Lock()
			events := slices.Clone(h.events)
			h.mu.Unlock()
			for _, e := range events {
				if e.via == h.other && e.ID != "" {
					h.failf("none", "an event at a sink of the closed handle")
				}
			}
		},
	},
	{
		name: "others go on after close",
		says: "Close ends this handle.", needs: fair | twoHandles,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			h.close(h.other)
			a.release()
			h.wake(w)
			w.hold()
		},
	},
}

func (h *harness) close(s store.Store) {
	h.handles = slices.DeleteFunc(h.handles, func(other store.Store) bool { return other == s })
	var err error
	end := h.traceCall(func() string { return "Close()" }, func() string { return describeError(err) })
	err = s.Close()
	end()
	if err != nil {
		h.fail("Close()", describeError(err), "nil")
	}
}
