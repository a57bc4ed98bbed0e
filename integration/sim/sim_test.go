package sim

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	histories = flag.Int("sim.histories", 300, "how many histories TestSimulation runs, with the seeds from -sim.first on")
	first     = flag.Uint64("sim.first", 1, "the first seed")
	oneSeed   = flag.Uint64("sim.seed", 0, "run this seed alone, several times, as the scheduler is not seeded")
	out       = flag.String("sim.out", "", "where failing histories are kept (default: a temporary directory)")
	within    = flag.Duration("sim.for", 0, "begin no history after so long (0: all of them)")
	enough    = flag.Int("sim.enough", 5, "end when so many histories have failed")
	nodes     = flag.Int("sim.quorum", 0, "run over a quorum of so many nodes, 3 or 5, instead of one store")
	scene     = flag.String("sim.scene", "", "run histories of this scene alone")
	judgeFile = flag.String("sim.judge", "", "judge the history in this file again")
)

const (
	// crossCheck: one history in so many is judged a second time with open calls.
	crossCheck = 8
	// repeats is how often -sim.seed runs its plan, each time in another order.
	repeats = 50
	// some of the violations of a history tell what is wrong.
	some = 5
)

// TestSimulation runs histories on all cores, each in a bubble of its own, and
// judges them.
func TestSimulation(t *testing.T) {
	if *judgeFile != "" {
		h, err := load(*judgeFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range Judge(h) {
			t.Error(v)
		}
		return
	}
	// Histories are small and short-lived; the collector would take a fifth of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	n, seedOf := *histories, func(i int) uint64 { return *first + uint64(i) }
	if *oneSeed != 0 {
		n, seedOf = repeats, func(int) uint64 { return *oneSeed }
		// One goroutine at a time leaves the fewest orders.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	start := time.Now()
	f := &fleet{t: t, report: newReport(), nodes: *nodes, until: deadline(start)}
	f.run(n, seedOf)
	t.Log(f.report.summary(time.Since(start)))
	if void := f.report.void; void*5 > f.report.histories {
		t.Errorf("%d of %d histories are void: %v", void, f.report.histories, f.report.why)
	}
	if *oneSeed != 0 {
		return
	}
	if *scene != "" {
		return
	}
	for _, k := range Kinds {
		if f.report.histories >= 300 && f.report.effects[k] == 0 {
			t.Errorf("no call or event met %q", k)
		}
	}
}

// TestSimulationOfQuorum is a little of -sim.quorum=3 and 5, for every day.
func TestSimulationOfQuorum(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	for _, n := range []int{3, 5} {
		start := time.Now()
		f := &fleet{t: t, report: newReport(), nodes: n}
		f.run(min(*histories/15, 20), func(i int) uint64 { return *first + uint64(i) })
		t.Logf("%d nodes: %s", n, f.report.summary(time.Since(start)))
	}
}

// fleet is the workers of a simulation.
type fleet struct {
	t     *testing.T
	nodes int       // of a quorum, or 0
	until time.Time // when no history begins any more; zero: no end
	next  atomic.Int64

	mu     sync.Mutex
	report *report
	failed int
	dir    string
}

// run runs so many histories on all cores.
func (f *fleet) run(n int, seedOf func(int) uint64) {
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(f.next.Add(1)) - 1; i < n && !f.fed() && !f.late(); i = int(f.next.Add(1)) - 1 {
				f.sail(seedOf(i))
			}
		})
	}
	workers.Wait()
}

func (f *fleet) late() bool { return !f.until.IsZero() && time.Now().After(f.until) }

// deadline is when -sim.for is over.
func deadline(start time.Time) (until time.Time) {
	if *within > 0 {
		until = start.Add(*within)
	}
	return until
}

// fed: so much has failed that more would tell nothing.
func (f *fleet) fed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed >= *enough
}

// sail runs and judges one history.
func (f *fleet) sail(seed uint64) {
	h, found := simulate(f.t, planOf(seed).over(f.nodes))
	if len(found) == 0 {
		found = Judge(h)
	}
	crossed := len(found) == 0 && seed%crossCheck == 0 && f.nodes == 0
	if crossed {
		found = JudgeOpen(h)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.add(h, found)
	if crossed {
		f.report.crossChecked++
	}
	if len(found) == 0 {
		return
	}
	f.failed++
	path, err := f.keep(h, found)
	if err != nil {
		f.t.Error(err)
	}
	for _, v := range found[:min(len(found), some)] {
		f.t.Errorf("seed %d (%s): %v", seed, faultsOf(h.Plan), v)
	}
	f.t.Logf("seed %d: the history is kept in %s; go test ./sim -run=TestSimulation$ -sim.seed=%d -sim.quorum=%d -sim.scene=%q runs its plan again", seed, path, seed, f.nodes, h.Plan.Scene)
}

func (f *fleet) keep(h *History, found []Violation) (string, error) {
	if f.dir == "" {
		f.dir = *out
	}
	if f.dir == "" {
		dir, err := os.MkdirTemp("", "dlock-sim-")
		if err != nil {
			return "", err
		}
		f.dir = dir
	}
	return keep(f.dir, h, found)
}

func planOf(seed uint64) Plan {
	if *scene != "" {
		return newPlan(seed, Scene(*scene), 0)
	}
	return NewPlan(seed)
}

// faultsOf names the scene of a plan, unless it is plain, and its faults.
func faultsOf(p Plan) string {
	text := "no faults"
	for i, f := range p.Faults {
		if i == 0 {
			text = string(f.Kind)
		} else {
			text += " + " + string(f.Kind)
		}
	}
	if p.Scene != Plain {
		text = string(p.Scene) + ", " + text
	}
	return text
}

// simulate runs a plan in a bubble.
func simulate(t *testing.T, p Plan) (h *History, found []Violation) {
	h = newHistory(p) // for want of another, if the bubble does not end
	found = inBubble(t, func() { h = Run(p) })
	return h, found
}

// inBubble runs f in a bubble. One that cannot end, because a goroutine is left
// or everybody waits for everybody, is a violation.
func inBubble(t *testing.T, f func()) (found []Violation) {
	defer func() {
		if p := recover(); p != nil {
			found = append(found, violation("goroutines", "%v", p))
		}
	}()
	synctest.Test(t, func(*testing.T) { f() })
	return nil
}
