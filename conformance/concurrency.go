package conformance

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

const saysAtomic = "Each Acquire, each Release, and each hold within a Renew is atomic: other operations see all of it or nothing."

// lock asks until c holds, as a client does: an event or Retry makes it ask again.
func (c *claim) lock() store.Grant {
	c.req.Queue = true
	for {
		heard := c.h.heardOf(c)
		g, err := c.ask()
		if err != nil {
			c.wrong("held or queued")
		}
		if g.Held {
			return g
		}
		if c.h.ctx.Err() != nil {
			c.wrong("held, before the case's deadline")
		}
		// An unfair store sends no events, and the lease here is very long.
		c.h.await(c.req.ID, heard, max(c.h.ttl/100, min(g.Retry, c.h.ttl)))
	}
}

// linger is the time in which others would come in if they could. In a bubble
// all of them run meanwhile, whatever the scheduler does.
func (h *harness) linger() { time.Sleep(time.Microsecond) }

var concurrencyCases = []testCase{
	{
		name: "writers",
		says: "Exclusive excludes every other owner.",
		run: func(h *harness) {
			var inside atomic.Int32
			var last atomic.Uint64
			h.together(8, func(i int) {
				for range h.rounds(40) {
					c := h.exclusive(fmt.Sprintf("W%d", i))
					token := c.lock().Token
					if n := inside.Add(1); n != 1 {
						c.wrong("no other holder; %d hold", n)
					}
					if before := last.Swap(token); before >= token {
						c.wrong("a token greater than %d, which was granted before", before)
					}
					h.linger()
					inside.Add(-1)
					c.release()
				}
			})
			h.wantFree(h.name)
		},
	},
	{
		name: "readers and writers",
		says: "Shared excludes other owners' exclusive holds and admits their shared ones.",
		run: func(h *harness) {
			var readers, writers atomic.Int32
			h.together(8, func(i int) {
				for range h.rounds(40) {
					mode, count := store.Shared, &readers
					if i%4 == 0 {
						mode, count = store.Exclusive, &writers
					}
					c := h.claim(fmt.Sprintf("O%d", i), mode)
					c.lock()
					count.Add(1)
					h.linger()
					if r, w := readers.Load(), writers.Load(); w > 1 || w == 1 && r > 0 {
						c.wrong("one writer or only readers; %d writers and %d readers hold", w, r)
					}
					count.Add(-1)
					c.release()
				}
			})
			h.wantFree(h.name)
		},
	},
	{
		name: "nested holds of many owners",
		says: "Holds int // live holds of this owner, this one included",
		run: func(h *harness) {
			var inside atomic.Int32
			h.together(6, func(i int) {
				for range h.rounds(25) {
					outer, inner, read := h.exclusive(fmt.Sprintf("O%d", i)), h.exclusive(fmt.Sprintf("O%d", i)), h.shared(fmt.Sprintf("O%d", i))
					token := outer.lock().Token
					if n := inside.Add(1); n != 1 {
						outer.wrong("no other holder; %d hold", n)
					}
					h.linger()
					inner.wantReentry(token, 2)
					read.wantReentry(token, 3)
					outer.release()
					read.release()
					inside.Add(-1)
					inner.release()
				}
			})
			h.wantFree(h.name)
		},
	},
	{
		name: "ids of one owner",
		says: saysReentry,
		run: func(h *harness) {
			outer := h.exclusive("A")
			token := outer.hold().Token
			inner := make([]*claim, 8)
			h.together(len(inner), func(i int) {
				inner[i] = h.claim("A", store.Mode(i%2))
				if inner[i].hold().Token != token {
					inner[i].wrong("token=%d", token)
				}
			})
			outer.wantReentry(token, 9)
			h.together(len(inner), func(i int) { inner[i].release() })
			outer.wantReentry(token, 1)
		},
	},
	{
		name: "Acquire and Release",
		says: "Every removal promotes", needs: fair,
		run: func(h *harness) {
			// The place may be taken just before or just after the release; it
			// may not be forgotten in between.
			for i := range h.rounds(100) {
				a, w := h.exclusive("A"), h.exclusive("W")
				a.on(fmt.Sprintf("%s/%d", h.name, i)).hold()
				w.on(a.req.Name).waiting()
				h.together(2, func(i int) {
					if i == 0 {
						a.release()
					} else {
						w.ask()
					}
				})
				if w.err != nil {
					w.wrong("held or queued")
				}
				if !w.grant.Held {
					h.wake(w)
				}
				w.hold()
				w.release()
			}
		},
	},
	{
		name: "Renew and Release",
		says: saysRevive,
		run: func(h *harness) {
			for i := range h.rounds(100) {
				a := h.exclusive("A").on(fmt.Sprintf("%s/%d", h.name, i))
				a.hold()
				h.together(2, func(i int) {
					if i == 0 {
						a.release()
						return
					}
					if err := h.renew(a.refFor(h.long))[0]; err != nil && !isLost(err) {
						h.fail("Renew("+describeRef(a.ref())+")", describeError(err), "nil or ErrLost")
					}
				})
				a.renewLost()
				h.wantFree(a.req.Name)
			}
		},
	},
	{
		name: "one wins",
		says: saysAtomic,
		run: func(h *harness) {
			for i := range h.rounds(50) {
				var won atomic.Int32
				h.together(4, func(j int) {
					c := h.exclusive(fmt.Sprintf("O%d", j)).on(fmt.Sprintf("%s/%d", h.name, i))
					if g, err := c.ask(); err == nil && g.Held {
						won.Add(1)
					}
				})
				if n := won.Load(); n != 1 {
					h.failf("one of four is granted a free name", "%d were", n)
				}
			}
		},
	},
	{
		name: "many names",
		says: "For each name a store keeps its live holds",
		run: func(h *harness) {
			// Each keeps its latest until it has the next.
			latest := make([]*claim, 8)
			h.together(len(latest), func(i int) {
				for j := range h.rounds(30) {
					c := h.exclusive("A").on(fmt.Sprintf("%s/%d/%d", h.name, i, j))
					c.hold()
					if latest[i] != nil {
						latest[i].release()
					}
					latest[i] = c
				}
			})
			for _, c := range latest {
				c.renew(h.long)
				c.release()
			}
		},
	},
}
