package conformance

import (
	"fmt"
	"time"
)

const saysFootprint = "A name that is free and has no waiters costs nothing that lasts."

// Cases about what a store keeps. Other cases would change the count.
var footprintCases = []testCase{
	{
		name: "released",
		says: saysFootprint, needs: footprint | alone,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(40) {
				name := fmt.Sprintf("%s/%d", h.name, i)
				a, b := h.exclusive("A").on(name), h.shared("A").on(name)
				a.hold()
				b.hold()
				b.release()
				a.release()
			}
			h.wantCount(before, false)
		},
	},
	{
		name: "waited for",
		says: saysFootprint, needs: footprint | alone | fair,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(20) {
				name := fmt.Sprintf("%s/%d", h.name, i)
				a, w, v := h.exclusive("A").on(name), h.exclusive("W").on(name), h.exclusive("V").on(name)
				a.hold()
				w.queue()
				v.queue()
				v.release()
				a.release()
				h.wake(w)
				w.release()
			}
			h.wantCount(before, false)
		},
	},
	{
		name: "expired",
		says: saysFootprint, needs: footprint | alone,
		run: func(h *harness) {
			before := h.count()
			var last callTime
			for i := range h.rounds(40) {
				h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i)).lease(h.ttl).hold()
				last = h.last
			}
			h.after(last, h.ttl)
			h.wantCount(before, true)
		},
	},
	{
		name: "died while waiting",
		says: saysFootprint, needs: footprint | alone | fair,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(20) {
				name := fmt.Sprintf("%s/%d", h.name, i)
				h.exclusive("A").on(name).lease(4 * h.ttl).hold()
				h.exclusive("W").on(name).waitTTL(h.ttl).queue()
			}
			h.after(h.last, 4*h.ttl)
			h.wantCount(before, true)
		},
	},
	{
		name: "asked about and not held",
		says: saysFootprint, needs: footprint | alone,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(40) {
				c := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i))
				h.wantFree(c.req.Name)
				c.renewLost()
				c.releaseLost()
			}
			h.wantCount(before, false)
		},
	},
	{
		name: "buried",
		says: saysBuryEnds, needs: footprint | alone,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(40) {
				c := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i)).lease(h.ttl).waitTTL(h.ttl)
				c.buryAbsent()
			}
			h.after(h.last, h.ttl)
			h.wantCount(before, true)
		},
	},
	{
		name: "buried while held",
		says: saysBuryEnds, needs: footprint | alone,
		run: func(h *harness) {
			before := h.count()
			for i := range h.rounds(40) {
				c := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i)).lease(4 * h.ttl).waitTTL(4 * h.ttl)
				c.hold()
				h.rely(h.last, 4*h.ttl)
				c.bury()
			}
			h.after(h.last, 4*h.ttl)
			h.wantCount(before, true)
		},
	},
}

// count is the store's footprint.
func (h *harness) count() (n int) {
	end := h.traceCall(func() string { return "Suite.Footprint" }, func() string { return fmt.Sprint(n) })
	n = h.Footprint(h.main)
	end()
	return n
}

// wantCount wants the footprint to come down to before. A store may remove what
// has expired when other names are used, so with use there is such traffic.
func (h *harness) wantCount(before int, use bool) {
	deadline := h.now() + h.deadline/2
	for round := 0; ; round++ {
		n := h.count()
		if n <= before {
			return
		}
		if h.now() > deadline || round > 100 {
			h.failf(fmt.Sprintf("a footprint of %d, as before", before), "a footprint of %d", n)
		}
		if use {
			for i := range 64 {
				a := h.exclusive("A").on(fmt.Sprintf("%s/use/%d/%d", h.name, round, i))
				a.hold()
				a.release()
			}
		}
		time.Sleep(h.ttl / 10)
	}
}
