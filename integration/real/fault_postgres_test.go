package real

import (
	"time"

	"github.com/dlock-go/dlock/internal/postgrestest"
)

var onPostgres = []string{postgresOne}

// Faults of PostgreSQL: rows 110 and 111 of docs/faults.md.
var postgresFaults = []kind{
	{name: "connections terminated", on: onPostgres, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(800*time.Millisecond, 2*time.Second),
			tick: every(h.between(30*time.Millisecond, 150*time.Millisecond), func() {
				h.site.postgres.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5")
			}),
			bit: func(s span) bool { return h.unknowns(0)(s) || h.saw(s, reconnected) },
		}
	}},
	{name: "database paused", slow: true, zombie: true, on: onPostgres, make: func(h *history) trouble {
		lasts := h.between(h.plan.TTL/2, h.plan.TTL*3/2)
		return trouble{
			lasts: lasts,
			begin: h.onPostgres((*postgrestest.Server).Pause),
			end:   h.onPostgres((*postgrestest.Server).Resume),
			bit:   h.disturbed(lasts / 4),
		}
	}},
	{name: "database crashed", slow: true, on: onPostgres, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(50*time.Millisecond, h.plan.TTL),
			begin: h.onPostgres((*postgrestest.Server).Crash),
			end:   h.onPostgres((*postgrestest.Server).Launch),
			bit:   h.disturbed(50 * time.Millisecond),
		}
	}},
	{name: "table locked", slow: true, on: onPostgres, make: func(h *history) trouble {
		lasts := h.between(h.plan.TTL/4, h.plan.TTL/2)
		var unlock func()
		return trouble{
			lasts: lasts,
			begin: func() { unlock = h.site.lockTable() },
			end:   func() { unlock() },
			bit:   h.disturbed(lasts / 4),
		}
	}},
}

func (h *history) onPostgres(f func(*postgrestest.Server)) func() {
	return func() { f(h.site.postgres) }
}
