package main

import (
	"fmt"
	"slices"
	"time"
)

// scenario is a job that is measured with several libraries.
type scenario struct {
	id        string
	title     string
	row       string // in a table of several scenarios
	about     string
	job       job
	libraries []string // ids
	columns   []string // keys of columns
	windows   bool     // repetitions are of the same locks, held or waited for
}

// sizes are what a test makes smaller.
type sizes struct {
	time     time.Duration // of each measurement
	reps     int
	lease    time.Duration
	patient  time.Duration // another lease, the default of dlock; none if 0
	distinct []int         // goroutines on names of their own
	waiters  int           // idle
	held     []int
	crowds   []int // on one name: waiters, or readers who hold
}

func usual(time time.Duration, reps int) sizes {
	return sizes{
		time: time, reps: reps, lease: lease, patient: patient,
		distinct: []int{1, 64, 512}, waiters: 200, held: []int{10_000, 100_000}, crowds: []int{1, 10, 100, 1000},
	}
}

// Which libraries are measured: those that do what the scenario wants. The pairs
// cannot wait, sync is in one process, redsync and redislock with shorter pauses
// differ only where somebody waits.
var (
	alone   = []string{"pair", "dlock", "redsync", "redsync-rueidis", "redsync-ours", "redislock", "rueidislock", "etcd-pair", "etcd-dlock", "concurrency", "pg-pair", "pg-dlock", "pglock", "advisory", "zk-dlock", "zk-lock", "sync"}
	between = []string{"publish", "dlock", "dlock-store", "redsync", "redsync-5ms", "redislock", "redislock-5ms", "rueidislock", "etcd-dlock", "etcd-dlock-store", "concurrency", "pg-dlock", "pg-dlock-store", "zk-dlock", "zk-dlock-store", "zk-lock"}
	within  = append(between[:len(between):len(between)], "sync")
	hands   = []string{"publish", "dlock", "redsync", "redsync-5ms", "redislock", "redislock-5ms", "rueidislock", "etcd-dlock", "concurrency", "pg-notify", "pg-dlock", "advisory", "zk-dlock", "zk-lock"}
	mixed   = []string{"dlock", "dlock-store", "redsync-5ms", "redislock-5ms", "rueidislock", "etcd-dlock", "etcd-dlock-store", "concurrency"}
	keeping = []string{"dlock", "redsync", "redislock", "rueidislock", "etcd-dlock", "concurrency", "pg-dlock", "zk-dlock", "zk-lock"}
	crowded = []string{"dlock", "publish", "redislock-5ms", "rueidislock"}
	reading = []string{"dlock"}
)

// The columns of the tables.
var (
	ofDistinct = []string{"locks", "p50", "p99", "requests", "serverCPU"}
	ofOne      = []string{"changes", "locks", "p50", "p99", "requests", "fairness", "lost"}
	ofMixed    = []string{"locks", "p50", "p99", "requests", "fairness", "lost"}
	ofHands    = []string{"p50", "p99", "requests", "lost"}
	ofIdle     = []string{"rate", "cpu", "goroutines"}
	ofHeld     = []string{"rate", "renewal", "cpu", "memory", "goroutines", "lost"}
	ofCrowd    = []string{"server", "perChange", "changes", "fairness", "lost"}
	ofReaders  = []string{"serverLock", "requests", "locks", "p50"}
)

// scenarios in the order of the report.
func (z sizes) scenarios() (all []scenario) {
	warm := min(200*time.Millisecond, z.time)
	add := func(s scenario) {
		s.job.Warm = max(s.job.Warm, warm)
		if s.job.Lease == 0 {
			s.job.Lease = z.lease
		}
		if s.job.Time == 0 {
			s.job.Time = z.time
		}
		if s.job.Processes == 0 {
			s.job.Processes = 1
		}
		all = append(all, s)
	}
	for _, n := range z.distinct {
		add(scenario{
			id: fmt.Sprint("distinct-", n), title: fmt.Sprintf("Uncontended: %s, each with a name of its own", count(n, "goroutine")),
			about: "Times are of Lock and Unlock together.",
			job:   job{Kind: "turns", Goroutines: n, Distinct: true}, libraries: alone, columns: ofDistinct,
		})
	}
	add(scenario{
		id: "one-name", title: "One name: 16 goroutines of one process",
		job: job{Kind: "turns", Goroutines: 16}, libraries: within, columns: ofOne,
	})
	add(scenario{
		id: "processes", title: "One name: 4 processes with 4 goroutines each",
		job: job{Kind: "turns", Goroutines: 4, Processes: 4}, libraries: between, columns: ofOne,
	})
	add(scenario{
		id: "hands", title: "Hand-over between two processes",
		about: fmt.Sprintf("A process unlocks when the other has waited for %v. Times are from Unlock to the end of Lock.", settled),
		job:   job{Kind: "hands", Goroutines: 1, Processes: 2, Time: 2 * z.time}, libraries: hands, columns: ofHands,
	})
	add(scenario{
		id: "idle", title: fmt.Sprintf("%d waiters while another process holds the lock", z.waiters),
		about: fmt.Sprintf("Processor time and goroutines are of both processes, in %v.", 5*z.time),
		job:   job{Kind: "idle", Goroutines: z.waiters, Processes: 2, Warm: z.time, Time: 5 * z.time}, libraries: keeping, columns: ofIdle, windows: true,
	})
	holding := func(id string, n int, lease time.Duration, libraries []string) {
		add(scenario{
			id: id, title: fmt.Sprintf("%d locks held and renewed, with leases of %v", n, lease),
			about: "A repetition is a third of the lease. With redsync and redislock one goroutine a lock extends it.",
			job:   job{Kind: "held", Locks: n, Distinct: true, Lease: lease, Time: lease / 3}, libraries: libraries, columns: ofHeld, windows: true,
		})
	}
	for _, n := range z.held {
		// A session keeps the locks of zk.Lock, without a renewal. redsync takes a minute to
		// get to 100,000, and then does what redislock does; ZooKeeper takes longer.
		left := []string{"zk-lock"}
		if n > 10_000 {
			left = append(left, "redsync", "zk-dlock")
		}
		libraries := slices.DeleteFunc(slices.Clone(keeping), func(id string) bool { return slices.Contains(left, id) })
		holding(fmt.Sprint("held-", n), n, z.lease, libraries)
	}
	if z.patient > 0 {
		holding("held-long", slices.Max(z.held), z.patient, []string{"dlock", "etcd-dlock"})
	}
	const readers = "One turn in 20 writes; the others read where there is a readers' lock."
	add(scenario{
		id: "mixed", title: "Read-mostly: 16 goroutines of one process", about: readers,
		job: job{Kind: "turns", Goroutines: 16, Reads: 0.95}, libraries: append(mixed[:len(mixed):len(mixed)], "sync"), columns: ofMixed,
	})
	add(scenario{
		id: "mixed-processes", title: "Read-mostly: 4 processes with 4 goroutines each", about: readers,
		job: job{Kind: "turns", Goroutines: 4, Processes: 4, Reads: 0.95}, libraries: mixed, columns: ofMixed,
	})
	for _, n := range z.crowds {
		add(scenario{
			id: growing("crowd-", n), title: count(n, "waiter") + " on one name", row: count(n, "waiter"),
			about: "With dlock each waiter has an owner of its own, so it waits at the server.",
			job:   job{Kind: "turns", Goroutines: n + 1, Apart: true, Warm: z.time}, libraries: crowded, columns: ofCrowd,
		})
	}
	for _, n := range z.crowds {
		add(scenario{
			id: growing("holders-", n), title: "A reader beside " + count(n, "other"), row: count(n, "reader"),
			about: "One more reader locks and unlocks beside readers with owners of their own.",
			job:   job{Kind: "turns", Goroutines: 1, Apart: true, Reads: 1, Readers: n, Warm: z.time}, libraries: reading, columns: ofReaders,
		})
	}
	return all
}

// growing is the id of the scenario for n of what the prefix stands for.
func growing(prefix string, n int) string { return fmt.Sprint(prefix, n) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
