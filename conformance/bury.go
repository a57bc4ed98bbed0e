package conformance

import "github.com/dlock-go/dlock/store"

const (
	saysBury     = "With Bury the id is also refused from now on, for ref.TTL, whether it was there or not: an Acquire of it that arrives late gets ErrLost and changes nothing."
	saysBuryEnds = "A buried id leaves no trace after that time."
)

var buryCases = []testCase{
	{
		name: "held",
		says: saysBury,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.bury()
			a.refused(store.ErrLost)
			a.waiting().refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
	{
		name: "absent",
		says: saysBury,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.buryAbsent()
			a.refused(store.ErrLost)
			a.waiting().refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
	{
		name: "absent beside a holder",
		says: saysBury,
		run: func(h *harness) {
			holder, a := h.exclusive("A"), h.exclusive("B")
			holder.hold()
			a.buryAbsent()
			a.waiting().refused(store.ErrLost)
			h.wantHolders(holder)
			h.wantQueue()
			holder.release()
			a.refused(store.ErrLost)
		},
	},
	{
		name: "dead",
		says: saysBury,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl) // the burial lasts a WaitTTL, which is long
			a.hold()
			h.after(h.last, h.ttl)
			a.buryAbsent()
			a.refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
	{
		name: "dead place",
		says: saysBury, needs: fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waitTTL(h.ttl)
			w.queue()
			h.after(h.last, h.ttl)
			w.buryAbsent()
			w.refused(store.ErrLost)
			h.wantQueue()
		},
	},
	{
		name: "beside readers",
		says: saysBury,
		run: func(h *harness) {
			for _, labels := range [][]string{{"A", "B"}, {"A", "B", "C"}} {
				var readers []*claim
				for _, label := range labels {
					r := h.shared(label)
					r.hold()
					readers = append(readers, r)
				}
				late := h.shared("D")
				late.buryAbsent()
				for _, r := range readers {
					late.refused(store.ErrLost)
					r.release()
				}
				late.refused(store.ErrLost)
				h.wantFree(h.name)
			}
		},
	},
	{
		name: "outlasts a hold",
		says: saysBury,
		run: func(h *harness) {
			holder, late := h.exclusive("A").lease(h.ttl).waitTTL(h.ttl), h.exclusive("B")
			late.buryAbsent()
			holder.hold()
			h.after(h.last, h.ttl)
			late.refused(store.ErrLost)
		},
	},
	{
		name: "late re-entry",
		says: saysBury,
		run: func(h *harness) {
			a, late := h.exclusive("A"), h.exclusive("A")
			a.hold()
			late.buryAbsent()
			late.refused(store.ErrLost)
			h.wantHolders(a)
		},
	},
	{
		name: "place",
		says: saysBury, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			w.bury()
			w.refused(store.ErrLost)
			h.wantQueue()
		},
	},
	{
		name: "promotes",
		says: "Release gives up a hold, or a place in the queue, and promotes.", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.bury()
			h.wake(w)
		},
	},
	{
		name: "of a place promotes",
		says: "Release gives up a hold, or a place in the queue, and promotes.", needs: fair,
		run: func(h *harness) {
			a, w, r := h.shared("A"), h.exclusive("W"), h.shared("R")
			a.hold()
			w.queue()
			r.queue()
			w.bury()
			h.wake(r)
			h.wantHolders(a, r)
		},
	},
	{
		name: "of a downgrade promotes",
		says: "a downgrade: an exclusive hold is released while its owner keeps shared holds", needs: fair,
		run: func(h *harness) {
			write, read, r := h.exclusive("A"), h.shared("A"), h.shared("R")
			write.hold()
			read.hold()
			r.queue()
			write.bury()
			h.wake(r)
			h.wantHolders(read, r)
		},
	},
	{
		name: "ends",
		says: saysBuryEnds,
		run: func(h *harness) {
			a := h.exclusive("A").lease(2 * h.ttl).waitTTL(h.ttl)
			a.hold()
			h.rely(h.last, 2*h.ttl)
			a.bury()
			buried := h.last
			h.before(buried, 2*h.ttl)
			a.refused(store.ErrLost)
			h.after(buried, 2*h.ttl)
			a.hold()
		},
	},
	{
		name: "other ids go on",
		says: saysBury,
		run: func(h *harness) {
			first, second, third := h.exclusive("A"), h.exclusive("A"), h.exclusive("A")
			first.hold()
			second.hold()
			first.bury()
			h.wantHolders(second)
			second.renew(h.long)
			second.hold()
			third.hold()
		},
	},
	{
		name: "other names go on",
		says: saysBury,
		run: func(h *harness) {
			a, b := h.exclusive("A"), h.exclusive("B")
			a.buryAbsent()
			b.hold()
			h.exclusive("A").on(h.name + "/other").hold()
		},
	},
	{
		name: "repeated",
		says: "Every operation is idempotent by id.",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.bury()
			a.buryAbsent()
			a.refused(store.ErrLost)
		},
	},
	{
		name: "stays buried when released",
		says: saysBury,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.buryAbsent()
			a.releaseLost()
			a.refused(store.ErrLost)
		},
	},
	{
		name: "is not renewed",
		says: "an id that is dead, released, buried or merely queued is ErrLost",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			a.bury()
			a.renewLost()
			h.exclusive("B").hold()
		},
	},
	{
		name: "is not shown",
		says: "Inspect reports the live holders and the queue of one name",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.buryAbsent()
			h.wantHolders()
			h.wantQueue()
		},
	},
	{
		name: "does not hold the name",
		says: "an Acquire of it that arrives late gets ErrLost and changes nothing", needs: fair,
		run: func(h *harness) {
			a, b, w := h.exclusive("A"), h.exclusive("B"), h.exclusive("W")
			b.hold()
			w.queue()
			a.buryAbsent()
			b.release()
			h.wake(w)
		},
	},
}
