package real

import (
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
)

var (
	onRedis  = []string{redisOne, redisSentinel, redisCluster}
	anyRedis = append([]string{redisQuorum}, onRedis...)
)

// Faults of Redis servers that stay where they are.
var redisFaults = []kind{
	{name: "clients killed", on: anyRedis, make: func(h *history) trouble { return h.clientKills("normal") }},
	{name: "subscribers killed", on: anyRedis, make: func(h *history) trouble { return h.clientKills("pubsub") }},
	{name: "server paused", slow: true, on: onRedis, make: func(h *history) trouble {
		var server *redistest.Server
		lasts := h.between(h.plan.TTL/2, h.plan.TTL*3/2)
		switch { // so short that nobody thinks it dead
		case h.site.sentinel != nil:
			lasts = h.between(500*time.Millisecond, 700*time.Millisecond)
		case h.site.cluster != nil:
			lasts = h.between(500*time.Millisecond, 1200*time.Millisecond)
		}
		return trouble{
			lasts: lasts,
			begin: func() { server = h.site.master(h.names()); server.Pause() },
			end:   func() { server.Resume() },
			bit:   h.disturbed(lasts / 2),
		}
	}},
	{name: "server restarted", slow: true, on: []string{redisOne}, needs: needs{durable: true}, make: (*history).restart},
	{name: "server restarted empty", on: []string{redisOne}, loses: true, make: (*history).restart},
	{name: "flushed", on: anyRedis, loses: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick: every(h.between(100*time.Millisecond, 500*time.Millisecond), func() {
				for _, server := range h.site.masters() {
					server.MustDo("FLUSHALL")
				}
			}),
			bit: h.losses,
		}
	}},
	{name: "keys deleted", on: onRedis, loses: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick: every(h.between(100*time.Millisecond, 500*time.Millisecond), func() {
				// All of a lock, or a part; nothing if nobody holds it just now.
				name := h.name()
				for _, master := range h.site.masters() {
					keys, err := master.Do("KEYS", "dlock:*:"+name).AsStrSlice()
					h.must(err)
					if i := h.rng.IntN(len(keys) + 1); i < len(keys) {
						keys = keys[i : i+1]
					}
					if len(keys) > 0 {
						master.MustDo(append([]string{"DEL"}, keys...)...)
					}
				}
			}),
			bit: h.losses,
		}
	}},
	{name: "scripts flushed", on: anyRedis, make: func(h *history) trouble {
		unknownScripts := func() (n int) {
			for _, server := range h.site.masters() {
				for line := range strings.Lines(server.MustDo("INFO", "errorstats")) {
					if count, ok := strings.CutPrefix(strings.TrimSpace(line), "errorstat_NOSCRIPT:count="); ok {
						i, _ := strconv.Atoi(count)
						n += i
					}
				}
			}
			return n
		}
		var before, after int
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			begin: func() { before = unknownScripts() },
			tick: every(h.between(50*time.Millisecond, 200*time.Millisecond), func() {
				for _, server := range h.site.masters() {
					server.MustDo("SCRIPT", "FLUSH")
				}
			}),
			end: func() { after = unknownScripts() },
			bit: func(span) bool { return after > before },
		}
	}},
	{name: "memory full", on: anyRedis, make: func(h *history) trouble {
		limit := func(bytes string) {
			for _, server := range h.site.masters() {
				server.MustDo("CONFIG", "SET", "maxmemory", bytes)
			}
		}
		return trouble{
			lasts: h.between(h.plan.TTL/2, h.plan.TTL*3/2),
			begin: func() { limit("1") },
			end:   func() { limit("0") },
			bit: func(s span) bool {
				return h.saw(s, func(r record) bool { return r.Op == opAcquire && r.Outcome == refused })
			},
		}
	}},
	{name: "user locked out", slow: true, on: []string{redisOne, redisQuorum}, needs: needs{users: true}, make: func(h *history) trouble {
		each := func(commands ...[]string) {
			for _, server := range h.site.redis {
				for _, command := range commands {
					server.MustDo(command...)
				}
			}
		}
		return trouble{
			lasts: h.between(h.plan.TTL/2, h.plan.TTL*3/2),
			begin: func() {
				each([]string{"ACL", "SETUSER", "locker", "off"}, []string{"CLIENT", "KILL", "USER", "locker"})
			},
			end: func() { each([]string{"ACL", "SETUSER", "locker", "on"}) },
			bit: func(s span) bool {
				return h.unknowns(0)(s) || h.saw(s, func(r record) bool { return r.isCall() && r.Outcome == refused })
			},
		}
	}},
	{name: "clock jumps", on: []string{redisOne, postgresOne}, needs: needs{clock: true}, loses: true, lingers: longestJump, make: func(h *history) trouble {
		jump := h.between(time.Second, longestJump)
		if h.rng.IntN(2) == 0 {
			jump = -jump
		}
		return trouble{
			lasts: h.between(h.plan.TTL/2, h.plan.TTL),
			begin: func() { h.site.clock.Jump(jump) },
			end:   func() { h.site.clock.Jump(0) },
			bit:   h.losses, // forward, or forward again
		}
	}},
}

const longestJump = 4 * time.Second

// clientKills has the servers close connections of a type.
func (h *history) clientKills(kind string) trouble {
	killed := 0
	return trouble{
		lasts: h.between(time.Second, 2*time.Second),
		tick: every(h.between(50*time.Millisecond, 200*time.Millisecond), func() {
			for _, server := range h.site.masters() {
				killed += server.KillClients(kind)
			}
		}),
		bit: func(span) bool { return killed > 0 },
	}
}

func (h *history) restart() trouble {
	server := func() *redistest.Server { return h.site.redis[0] }
	return trouble{
		lasts: h.between(50*time.Millisecond, h.plan.TTL),
		begin: func() { server().Kill() },
		end:   func() { server().Restart() },
		bit:   h.unknowns(0),
	}
}
