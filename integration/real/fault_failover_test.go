package real

import (
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
)

// Faults in which locks move from one Redis server to another.
var failoverFaults = []kind{
	{name: "failover", on: []string{redisSentinel, redisCluster}, loses: true, moves: true, make: func(h *history) trouble {
		return trouble{
			begin: func() {
				if h.site.sentinel != nil {
					h.site.sentinel.Failover()
				} else {
					h.site.cluster.Failover(h.site.slot(h.names()))
				}
			},
			bit: func(span) bool { return h.site.moved() },
		}
	}},
	{name: "master killed", on: []string{redisSentinel, redisCluster}, loses: true, moves: true, make: func(h *history) trouble {
		var old *redistest.Server
		return trouble{
			begin: func() {
				if h.site.cluster != nil {
					slot := h.site.slot(h.names())
					old = h.site.cluster.Master(slot)
					old.Kill()
					h.site.cluster.Master(slot)
					return
				}
				old = h.site.sentinel.Master()
				old.Kill()
				for deadline := time.Now().Add(20 * time.Second); h.site.sentinel.Master() == old; time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						h.t.Fatal("the sentinels elect no other master")
					}
				}
			},
			end: func() { old.Restart() },
			bit: h.unknowns(0),
		}
	}},
	{name: "slot moves", on: []string{redisCluster}, make: func(h *history) trouble {
		var slot int
		var to *redistest.Server
		return trouble{
			lasts: h.between(500*time.Millisecond, 1500*time.Millisecond),
			begin: func() {
				slot = h.site.slot(h.names())
				from := h.site.cluster.Master(slot)
				for to == nil || to == from {
					to = h.site.redis[h.rng.IntN(3)]
				}
				h.site.cluster.BeginMove(slot, to)
			},
			tick: every(h.between(50*time.Millisecond, 200*time.Millisecond), func() { h.site.cluster.MoveKeys(slot, to, 1) }),
			end: func() {
				for h.site.cluster.MoveKeys(slot, to, 10) > 0 {
				}
				h.site.cluster.EndMove(slot, to)
			},
			bit: func(span) bool { return true }, // EndMove has seen it
		}
	}},
}
