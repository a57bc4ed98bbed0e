package conformance

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

var acquireCases = []testCase{
	{
		name: "answer",
		says: "Grant is the answer to a request. ... TTL is how much of a hold's lease certainly remains ... live holds of this owner, this one included ... place in the queue: 1 is the head, 0 is none",
		run: func(h *harness) {
			for _, c := range []*claim{h.exclusive("A"), h.shared("B").on(h.name + "/shared")} {
				g := c.hold()
				if g.Token == 0 || g.TTL <= 0 || g.TTL > c.req.TTL || g.Holds != 1 || g.Position != 0 {
					c.wrong("a token, 0 < TTL <= %v, holds=1, position 0", c.req.TTL)
				}
			}
		},
	},
	{
		name: "exclusive excludes exclusive",
		says: "Exclusive excludes every other owner.",
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "exclusive excludes shared",
		says: "Exclusive excludes every other owner.",
		run: func(h *harness) {
			h.exclusive("A").hold()
			h.shared("B").refused(store.ErrHeld)
		},
	},
	{
		name: "shared excludes exclusive",
		says: "Shared excludes other owners' exclusive holds and admits their shared ones.",
		run: func(h *harness) {
			h.shared("A").hold()
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "refusal takes no place",
		says: "ErrHeld: not granted now, and no place was taken because none was asked for.",
		run: func(h *harness) {
			a, b := h.exclusive("A"), h.exclusive("B")
			a.hold()
			b.refused(store.ErrHeld)
			a.release()
			h.exclusive("C").hold()
			b.releaseLost()
		},
	},
	{
		name: "does not wait",
		says: "Acquire tries once and does not wait.",
		run: func(h *harness) {
			h.exclusive("A").hold()
			for _, b := range []*claim{h.exclusive("B"), h.exclusive("B").waiting(), h.shared("C"), h.shared("C").waiting()} {
				b.ask()
				took := h.last.answered - h.last.sent
				if took > h.prompt() {
					b.wrong("an answer at once, not after %v", took)
				}
			}
		},
	},
	{
		name: "names a holder",
		says: "HeldBy is the label of one hold that is in the way of a request that is not held, or \"\" if the store does not know it without a further call.",
		run: func(h *harness) {
			h.exclusive("A").hold()
			for _, c := range []*claim{h.exclusive("B"), h.exclusive("B").waiting(), h.shared("C").waiting()} {
				if g, _ := c.ask(); g.HeldBy != "" && g.HeldBy != "case A" {
					c.wrong("HeldBy \"case A\", or \"\"")
				}
			}
		},
	},
	{
		name: "repeated",
		says: "The id is a live hold. The answer is the same, with the same token, so repeating a request is harmless.",
		run: func(h *harness) {
			for _, c := range []*claim{h.exclusive("A"), h.shared("B").on(h.name + "/shared")} {
				first := c.hold()
				again := c.hold()
				if again.Token != first.Token {
					c.wrong("the same token, %d", first.Token)
				}
			}
		},
	},
	{
		name: "repeated counts once",
		says: "Holds int // live holds of this owner, this one included",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			if a.hold().Holds != 1 {
				a.wrong("holds=1, for it is one id")
			}
			a.release()
			h.exclusive("B").hold()
		},
	},
	{
		name: "repeated extends",
		says: "The deadline becomes now+TTL if that is later.",
		run: func(h *harness) {
			a := h.exclusive("A").lease(2 * h.ttl)
			a.hold()
			first := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			a.hold()
			h.before(h.last, 2*h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "repeated extends a reader",
		says: "The deadline becomes now+TTL if that is later.",
		run: func(h *harness) {
			b, a := h.shared("B"), h.shared("A").lease(2*h.ttl)
			b.hold()
			a.hold()
			first := h.last
			h.sleep(h.ttl)
			h.rely(first, 2*h.ttl)
			a.hold()
			h.before(h.last, 2*h.ttl)
			h.wantHolders(a, b)
		},
	},
	{
		name: "repeated never shortens",
		says: "The deadline becomes now+TTL if that is later.",
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			a.hold()
			h.rely(h.last, h.ttl)
			a.renew(h.long)
			h.rely(callTime{}, h.long)
			a.hold()
			h.after(h.last, h.ttl)
			h.exclusive("B").refused(store.ErrHeld)
		},
	},
	{
		name: "refusal says when to ask again",
		says: "is how long at most until asking again can help should no event come: when the holds in its way run out unless renewed ... It is positive.",
		run: func(h *harness) {
			a, b := h.exclusive("A").lease(3*h.ttl), h.exclusive("B")
			a.hold()
			held := h.last
			h.rely(held, 3*h.ttl)
			g := b.refused(store.ErrHeld)
			h.wantRetry(b, g, held, 3*h.ttl)
		},
	},
	{
		name: "retry follows the longest hold",
		says: "is how long at most until asking again can help should no event come: when the holds in its way run out unless renewed",
		run: func(h *harness) {
			short, long, w := h.shared("A").lease(2*h.ttl), h.shared("B").lease(4*h.ttl), h.exclusive("W")
			short.hold()
			h.rely(h.last, h.ttl)
			long.hold()
			held := h.last
			g := w.refused(store.ErrHeld)
			h.wantRetry(w, g, held, 4*h.ttl)
			if g.Retry < 3*h.ttl {
				w.wrong("retry near %v, when the last hold in its way ends", 4*h.ttl)
			}
		},
	},
	{
		name: "ids compared whole",
		says: "Ids are 32 lower-case hexadecimal digits of 128 random bits. ... Every operation is idempotent by id.",
		run: func(h *harness) {
			a := h.exclusive("A")
			a.hold()
			last := map[bool]string{true: "1", false: "0"}[a.req.ID[31] == '0']
			b := h.exclusive("B").withID(a.req.ID[:31] + last)
			b.refused(store.ErrHeld)
			b.releaseLost()
			b.renewLost()
			h.wantHolders(a)
		},
	},
	{
		name: "owners compared whole",
		says: "The owner has a live hold: this is a re-entry.",
		run: func(h *harness) {
			for i, pair := range [][2]string{
				{"worker-10", "worker-1"}, {"worker-1", "worker-10"}, {"Worker", "worker"}, {"a", "b"},
				{"a:b", "a"}, {"x*", "xy"}, {"o%s", "o"}, {"{o}", "o"}, {`"o"`, "o"}, {`o\`, "o"}, {"0", "00"}, {"1", "1.0"},
				{longOwner, longOwner[:63]}, {longOwner, longOwner[:63] + "x"},
			} {
				name := h.name + "/" + string(rune('a'+i))
				h.exclusive("A").on(name).owned(pair[0]).hold()
				h.exclusive("B").on(name).owned(pair[1]).refused(store.ErrHeld)
				h.shared("B").on(name).owned(pair[1]).refused(store.ErrHeld)
			}
		},
	},
}

// longOwner is as long as owners may be.
const longOwner = "o23456789-123456789-123456789-123456789-123456789-123456789-1234"

// wantRetry wants Retry to be positive and not later than the end of a hold of
// d that the call s took, give or take what staggers the waiters.
func (h *harness) wantRetry(c *claim, g store.Grant, s callTime, d time.Duration) {
	stagger := h.lag + 100*time.Millisecond
	if atMost := d - (h.last.sent - s.answered) + stagger; g.Retry <= 0 || g.Retry > atMost {
		c.wrong("0 < retry <= %v; got retry %v", atMost, g.Retry)
	}
}
