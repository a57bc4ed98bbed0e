package real

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
)

var (
	wired   = []string{redisOne, redisQuorum, etcdOne, etcdThree, postgresOne, zookeeperOne, zookeeperThree}
	proxied = []string{redisOne, redisQuorum} // script by script
)

// Faults between workers and servers.
var wireFaults = []kind{
	{name: "connections cut", aside: true, on: wired, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(800*time.Millisecond, 2*time.Second),
			tick:  every(h.between(30*time.Millisecond, 150*time.Millisecond), func() { cut(h.site.wires[h.anyone().job.Worker]) }),
			bit:   func(s span) bool { return h.unknowns(0)(s) || h.saw(s, reconnected) },
		}
	}},
	{name: "link of a worker dead", slow: true, aside: true, on: wired, make: func(h *history) trouble {
		var c *child
		return trouble{
			lasts: h.between(h.plan.TTL, 2*h.plan.TTL),
			begin: func() { c = h.holder(); blackhole(h.site.wires[c.job.Worker], true) },
			end:   func() { blackhole(h.site.wires[c.job.Worker], false) },
			bit:   func(s span) bool { return h.unknowns(c.job.Worker)(s) },
		}
	}},
}

func cut(wires []wire) {
	for _, w := range wires {
		w.Cut()
	}
}

func blackhole(wires []wire, on bool) {
	for _, w := range wires {
		w.Blackhole(on)
	}
}

// Faults that single script calls meet.
var replyFaults = []kind{
	{name: "requests or replies lost", slow: true, aside: true, on: proxied, make: func(h *history) trouble {
		return h.calls(5, redistest.CutBefore, redistest.CutReply, redistest.SwallowReply)
	}},
	{name: "requests doubled", doubles: true, aside: true, on: proxied, make: func(h *history) trouble {
		return h.calls(2, redistest.Twice)
	}},
	{name: "requests late", aside: true, on: proxied, make: func(h *history) trouble {
		return h.calls(5, redistest.Hold)
	}},
	{name: "replies late", slow: true, aside: true, on: proxied, make: func(h *history) trouble {
		latency := h.between(h.plan.TTL/20, h.plan.TTL/2)
		delay := func(d time.Duration) {
			for _, p := range h.site.proxies() {
				p.Delay(d)
			}
		}
		return trouble{
			lasts: h.between(h.plan.TTL, 2*h.plan.TTL),
			begin: func() { delay(latency) },
			end:   func() { delay(0) },
			bit:   h.disturbed(latency),
		}
	}},
}

// calls has one in so many script calls meet one of these actions.
func (h *history) calls(in int, actions ...redistest.Action) trouble {
	var met atomic.Int64
	var mu sync.Mutex // the proxies ask concurrently
	rng := h.another()
	plan := func(int, []string) redistest.Action {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(in) > 0 {
			return redistest.Pass
		}
		met.Add(1)
		return actions[rng.IntN(len(actions))]
	}
	each := func(f func(*redistest.Proxy)) {
		for _, p := range h.site.proxies() {
			f(p)
		}
	}
	return trouble{
		lasts: h.between(time.Second, 2*time.Second),
		begin: func() { each(func(p *redistest.Proxy) { p.Plan(plan) }) },
		tick: every(h.between(100*time.Millisecond, 400*time.Millisecond), func() {
			each((*redistest.Proxy).Unhold)
			cut(h.site.wires[h.anyone().job.Worker]) // one whose replies were swallowed hears nothing more
		}),
		end: func() {
			each(func(p *redistest.Proxy) { p.Plan(nil) })
			each((*redistest.Proxy).Unhold)
			each((*redistest.Proxy).Cut)
		},
		bit: func(span) bool { return met.Load() > 0 },
	}
}

func (s *site) proxies() (all []*redistest.Proxy) {
	for _, wires := range s.wires {
		for _, w := range wires {
			all = append(all, w.(*redistest.Proxy))
		}
	}
	return all
}
