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
	// With MinReplicas nothing is granted or renewed that no replica has.
	{name: "replicas paused", slow: true, on: []string{redisSentinel}, needs: needs{replicas: true}, make: func(h *history) trouble {
		var replicas []*redistest.Server
		var from, to moment // of their pause
		return trouble{
			lasts: h.between(400*time.Millisecond, 800*time.Millisecond), // so short that none is thought dead
			begin: func() {
				for _, server := range h.site.redis {
					if !isMaster(server) {
						replicas = append(replicas, server)
						server.Pause()
					}
				}
				from = now()
			},
			end: func() {
				to = now()
				for _, server := range replicas {
					server.Resume()
				}
			},
			bit: h.unknowns(0),
			never: func(r record) bool {
				return r.Call >= from && r.Return != 0 && r.Return <= to &&
					(r.Op == opAcquire && r.Outcome == held || r.Op == opRenew && r.Outcome == done)
			},
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
