package main

import (
	"fmt"
	"math"

	"github.com/dlock-go/dlock/integration/section"
)

// target is a ratio that dlock wants to have.
type target struct {
	what  string
	least bool // want is the least of it, otherwise the most
	want  float64
	got   func(b *bench) float64
}

var (
	redisPeers = []string{"redsync", "redsync-5ms", "redsync-rueidis", "redsync-ours", "redislock", "redislock-5ms", "rueidislock"}
	wanted     = []target{
		{"Redis, uncontended, 1 goroutine: locks/s to redsync's on rueidis", true, 1.0, rate("distinct-1", "locks", "dlock", "redsync-rueidis")},
		{"Redis, uncontended, 64 goroutines: locks/s to redsync's", true, 1.0, rate("distinct-64", "locks", "dlock", "redsync")},
		{"Redis, uncontended, 512 goroutines: locks/s to the floor's", true, 0.65, rate("distinct-512", "locks", "dlock", "pair")},
		{"Redis, uncontended, 512 goroutines: locks/s to redsync's on rueidis", true, 1.10, rate("distinct-512", "locks", "dlock", "redsync-rueidis")},
		{"Redis, uncontended, 512 goroutines: locks/s to rueidislock's", true, 1.4, rate("distinct-512", "locks", "dlock", "rueidislock")},
		{"Redis, one name, 16 goroutines: hand-overs/s to the best other library's", true, 30, rate("one-name", "changes", "dlock", redisPeers...)},
		{"Redis, one name, 16 goroutines: hand-overs/s to `sync.Mutex`'s", true, 0.12, rate("one-name", "changes", "dlock", "sync")},
		{"Redis, one name, 16 goroutines: most/least", false, 1.2, value("one-name", "fairness", "dlock")},
		{"Redis, one name, 16 goroutines, no local hand-over: hand-overs/s to the best other library's", true, 1.8, rate("one-name", "changes", "dlock-store", redisPeers...)},
		{"Redis, one name, 4 × 4: hand-overs/s to the best other library's", true, 25, rate("processes", "changes", "dlock", redisPeers...)},
		{"Redis, one name, 4 × 4: most/least", false, 1.4, value("processes", "fairness", "dlock")},
		{"Redis, one name, 4 × 4, no local hand-over: hand-overs/s to the best other library's", true, 1.8, rate("processes", "changes", "dlock-store", redisPeers...)},
		{"Redis, hand-over between processes: p50 to that of publish and retry", false, 1.0, ratio(value("hands", "p50", "dlock"), value("hands", "p50", "publish"))},
		{"Redis, hand-over between processes: p99 to p50", false, 2, ratio(value("hands", "p99", "dlock"), value("hands", "p50", "dlock"))},
		{"Redis, 200 idle waiters: commands/s", false, 1, value("idle", "rate", "dlock")},
		{"Redis, 10,000 locks held: commands per lock and renewal", false, 0.01, value("held-10000", "renewal", "dlock")},
		{"Redis, 10,000 locks held: processor time to the best other library's", false, 0.1, ratio(value("held-10000", "cpu", "dlock"), leastOf("held-10000", "cpu", redisPeers...))},
		{"etcd, uncontended, 1 goroutine: locks/s to `concurrency.Mutex`'s", true, 1.0, rate("distinct-1", "locks", "etcd-dlock", "concurrency")},
		{"etcd, uncontended, 512 goroutines: locks/s to the floor's", true, 0.85, rate("distinct-512", "locks", "etcd-dlock", "etcd-pair")},
		{"etcd, uncontended, 512 goroutines: locks/s to `concurrency.Mutex`'s", true, 1.05, rate("distinct-512", "locks", "etcd-dlock", "concurrency")},
		{"etcd, one name, 16 goroutines: hand-overs/s to `concurrency.Mutex`'s", true, 100, rate("one-name", "changes", "etcd-dlock", "concurrency")},
		{"etcd, one name, 16 goroutines, no local hand-over: hand-overs/s to `concurrency.Mutex`'s", true, 5, rate("one-name", "changes", "etcd-dlock-store", "concurrency")},
		{"etcd, one name, 4 × 4: hand-overs/s to `concurrency.Mutex`'s", true, 80, rate("processes", "changes", "etcd-dlock", "concurrency")},
		{"etcd, one name, 4 × 4, no local hand-over: hand-overs/s to `concurrency.Mutex`'s", true, 3, rate("processes", "changes", "etcd-dlock-store", "concurrency")},
		{"etcd, read-mostly, 16 goroutines, no local hand-over: locks/s to `concurrency.Mutex`'s", true, 5, rate("mixed", "locks", "etcd-dlock-store", "concurrency")},
		{"etcd, hand-over between processes: p99 to that of `concurrency.Mutex`", false, 0.1, ratio(value("hands", "p99", "etcd-dlock"), value("hands", "p99", "concurrency"))},
		{"PostgreSQL, uncontended, 64 goroutines: locks/s to the floor's", true, 0.5, rate("distinct-64", "locks", "pg-dlock", "pg-pair")},
		{"PostgreSQL, uncontended, 64 goroutines: locks/s to pglock's", true, 3, rate("distinct-64", "locks", "pg-dlock", "pglock")},
		{"PostgreSQL, uncontended, 64 goroutines: locks/s to `pg_advisory_lock`'s", true, 0.3, rate("distinct-64", "locks", "pg-dlock", "advisory")},
		{"PostgreSQL, hand-over between processes: p50 to that of a commit with NOTIFY", false, 3, ratio(value("hands", "p50", "pg-dlock"), value("hands", "p50", "pg-notify"))},
		{"PostgreSQL, 200 idle waiters: statements/s", false, 2, value("idle", "rate", "pg-dlock")},
		{"PostgreSQL, 10,000 locks held: statements per lock and renewal", false, 0.02, value("held-10000", "renewal", "pg-dlock")},
		{"ZooKeeper, uncontended, 1 goroutine: locks/s to `zk.Lock`'s", true, 0.9, rate("distinct-1", "locks", "zk-dlock", "zk-lock")},
		{"ZooKeeper, uncontended, 64 goroutines: locks/s to `zk.Lock`'s", true, 0.9, rate("distinct-64", "locks", "zk-dlock", "zk-lock")},
		{"ZooKeeper, one name, 16 goroutines: hand-overs/s to `zk.Lock`'s", true, 50, rate("one-name", "changes", "zk-dlock", "zk-lock")},
		{"ZooKeeper, hand-over between processes: p50 to that of `zk.Lock`", false, 1.0, ratio(value("hands", "p50", "zk-dlock"), value("hands", "p50", "zk-lock"))},
		{"ZooKeeper, 200 idle waiters: packets/s to `zk.Lock`'s, which are pings", false, 1.0, ratio(value("idle", "rate", "zk-dlock"), value("idle", "rate", "zk-lock"))},
	}
)

// value is a median, and not a number if it was not measured.
func value(scenario, column, library string) func(*bench) float64 {
	return func(b *bench) float64 {
		for _, r := range b.rowsOf(scenario) {
			if r.library.id == library {
				return r.values[column].median()
			}
		}
		return math.NaN()
	}
}

// leastOf are those that were measured.
func leastOf(scenario, column string, libraries ...string) func(*bench) float64 {
	return extreme(scenario, column, libraries, func(a, b float64) bool { return a < b })
}

func mostOf(scenario, column string, libraries ...string) func(*bench) float64 {
	return extreme(scenario, column, libraries, func(a, b float64) bool { return a > b })
}

func extreme(scenario, column string, libraries []string, better func(a, b float64) bool) func(*bench) float64 {
	return func(b *bench) float64 {
		best := math.NaN()
		for _, l := range libraries {
			if v := value(scenario, column, l)(b); math.IsNaN(best) || better(v, best) {
				best = v
			}
		}
		return best
	}
}

func ratio(of, to func(*bench) float64) func(*bench) float64 {
	return func(b *bench) float64 { return of(b) / to(b) }
}

// rate is that of one library to that of the best of others.
func rate(scenario, column, of string, to ...string) func(*bench) float64 {
	return ratio(value(scenario, column, of), mostOf(scenario, column, to...))
}

// met reports whether a value is as wanted.
func (t target) met(got float64) bool {
	if t.least {
		return got >= t.want
	}
	return got <= t.want
}

// targets is a table of them, as measured.
func (b *bench) targets() string {
	var rows [][]string
	for _, t := range wanted {
		got, sign, verdict := t.got(b), "≤ ", "no"
		if t.least {
			sign = "≥ "
		}
		switch {
		case math.IsNaN(got):
			verdict = "not measured"
		case t.met(got):
			verdict = "yes"
		}
		rows = append(rows, []string{t.what, sign + fmt.Sprint(t.want), short(got), verdict})
	}
	return section.Table([]string{"Ratio of medians", "target", "measured", "met"}, rows)
}
