package real

import (
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
)

var onQuorum = []string{redisQuorum}

// Faults of one node of a quorum. Nobody is to notice them: locks are taken
// meanwhile, and exclusion is judged as ever.
var quorumFaults = []kind{
	{name: "node restarted", slow: true, on: onQuorum, needs: needs{durable: true}, make: (*history).nodeRestart},
	{name: "node restarted empty", slow: true, on: onQuorum, make: (*history).nodeRestart},
	{name: "node restarted empty at once", on: onQuorum, make: func(h *history) trouble {
		node := h.node()
		return trouble{
			lasts: h.plan.TTL,
			begin: func() { node.Restart() },
			bit:   h.served,
		}
	}},
	{name: "node paused", on: onQuorum, make: func(h *history) trouble {
		node := h.node()
		return trouble{
			lasts: h.between(h.plan.TTL/2, 2*h.plan.TTL),
			begin: func() { node.Pause() },
			end:   func() { node.Resume() },
			bit:   h.served,
		}
	}},
	{name: "node unreachable", on: onQuorum, make: func(h *history) trouble {
		n := h.rng.IntN(len(h.site.redis))
		return trouble{
			lasts: h.between(h.plan.TTL/2, 2*h.plan.TTL),
			begin: func() { blackhole(h.site.wiresTo(n), true) },
			end:   func() { blackhole(h.site.wiresTo(n), false) },
			bit:   h.served,
		}
	}},
	{name: "node cut off again and again", on: onQuorum, make: func(h *history) trouble {
		n := h.rng.IntN(len(h.site.redis))
		return trouble{
			lasts: h.between(h.plan.TTL/2, 2*h.plan.TTL),
			tick:  every(h.between(20*time.Millisecond, 100*time.Millisecond), func() { cut(h.site.wiresTo(n)) }),
			bit:   h.served,
		}
	}},
	// A hold that just a majority has, as where another node was slow or had somebody
	// else first in its queue, has none any more when one of these loses it. A restart
	// says so of itself, FLUSHALL does not.
	{name: "node flushed", loses: true, on: onQuorum, make: func(h *history) trouble {
		node := h.node()
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick:  every(h.between(100*time.Millisecond, 500*time.Millisecond), func() { node.MustDo("FLUSHALL") }),
			bit:   h.served,
		}
	}},
	{name: "two nodes paused", slow: true, on: onQuorum, make: func(h *history) trouble {
		spared := h.rng.IntN(len(h.site.redis))
		others := func(f func(*redistest.Server)) {
			for i, server := range h.site.redis {
				if i != spared {
					f(server)
				}
			}
		}
		return trouble{
			lasts: h.between(h.plan.TTL/2, h.plan.TTL*3/2),
			begin: func() { others((*redistest.Server).Pause) },
			end:   func() { others((*redistest.Server).Resume) },
			bit:   h.unknowns(0),
		}
	}},
}

// node is any of a quorum.
func (h *history) node() *redistest.Server { return h.site.redis[h.rng.IntN(len(h.site.redis))] }

func (h *history) nodeRestart() trouble {
	node := h.node()
	return trouble{
		lasts: h.between(50*time.Millisecond, 2*h.plan.TTL),
		begin: func() { node.Kill() },
		end:   func() { node.Restart() },
		bit:   h.served,
	}
}

// served is whether the store gave or renewed a hold while a node was not what it
// should be: that is all of a difference that it may make.
func (h *history) served(s span) bool {
	return h.saw(s, func(r record) bool {
		gives := r.Op == opAcquire && r.Outcome == held || r.Op == opRenew && r.Outcome == done
		return gives && r.Call >= s.From && r.Return <= s.To
	})
}

// wiresTo are those of all workers to a node of a quorum.
func (s *site) wiresTo(node int) (all []wire) {
	for _, wires := range s.wires {
		all = append(all, wires[node])
	}
	return all
}
