package peers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// report is what all runs of one library have shown.
type report struct {
	library
	overlaps      []time.Duration
	untold        int
	darkened      []bool          // the runs of overlap: whether they are void, as nothing can be said of them
	orphaned      []bool          // the same of orphan
	again         int             // overlaps made again for that
	cut, swallow  []time.Duration // until a rival was let in
	wakeups       []time.Duration
	failed        int // waits that ended with an error
	tokens, grown int // runs in which there were tokens, and in which they grew
}

// faults are the runs of a library. Each adds one figure to the report, whose
// lock it takes.
var faults = []struct {
	name string
	run  func(t *testing.T, s *site, name string, r *report, mu *sync.Mutex)
}{
	{"overlap", func(t *testing.T, s *site, name string, r *report, mu *sync.Mutex) {
		both, told, void := s.overlap(t, name)
		for again := 0; void && again < 5; again++ {
			mu.Lock()
			r.again++
			mu.Unlock()
			both, told, void = s.overlap(t, fmt.Sprint(name, "-again-", again))
		}
		mu.Lock()
		defer mu.Unlock()
		if r.darkened = append(r.darkened, void); void {
			return
		}
		if r.overlaps = append(r.overlaps, both); !told {
			r.untold++
		}
		if s.dlock && both > 0 {
			t.Errorf("two held the lock for %v", both)
		}
	}},
	{"orphan", func(t *testing.T, s *site, name string, r *report, mu *sync.Mutex) {
		for reply, into := range map[state]*[]time.Duration{cutReply: &r.cut, mute: &r.swallow} {
			free, void := s.orphan(t, fmt.Sprint(name, "-", reply), reply)
			for again := 0; void && again < 5; again++ {
				free, void = s.orphan(t, fmt.Sprint(name, "-", reply, "-again-", again), reply)
			}
			began := time.Now().Add(-free)
			mu.Lock()
			if r.orphaned = append(r.orphaned, void); !void {
				*into = append(*into, free)
			}
			mu.Unlock()
			if s.dlock && free > time.Second && !s.excused(began) {
				t.Errorf("a lock that nobody has was not free for %v", free)
			}
		}
	}},
	{"wakeup", func(t *testing.T, s *site, name string, r *report, mu *sync.Mutex) {
		after, err := s.wakeup(t, name)
		began := time.Now().Add(-max(after, lease)) // an error comes no sooner
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			r.failed++
			if s.dlock && !s.excused(began) {
				t.Error(err)
			}
			return
		}
		r.wakeups = append(r.wakeups, after)
		if s.dlock && after > time.Second && !s.excused(time.Now().Add(-after)) {
			t.Errorf("the waiter was let in after %v", after)
		}
	}},
	{"tokens", func(t *testing.T, s *site, name string, r *report, mu *sync.Mutex) {
		before, after := s.tokens(t, name)
		mu.Lock()
		defer mu.Unlock()
		if before > 0 {
			r.tokens++
		}
		if after > before {
			r.grown++
		}
		if s.dlock && (before == 0 || after <= before) {
			t.Errorf("token %d was followed by %d", before, after)
		}
	}},
}

// TestPeers runs every fault with every library.
func TestPeers(t *testing.T) {
	var reports []*report
	for _, l := range libraries {
		if strings.Contains(l.name, *only) {
			reports = append(reports, &report{library: l})
		}
	}
	t.Run("all", func(t *testing.T) {
		for _, r := range reports {
			t.Run(r.name, func(t *testing.T) {
				measure(t, r)
			})
		}
	})
	for _, r := range reports {
		for _, all := range [][]time.Duration{r.overlaps, r.cut, r.swallow, r.wakeups} {
			slices.Sort(all)
		}
	}
	t.Log("\n" + table(t, reports))
	for _, r := range reports {
		for fault, runs := range map[string][]bool{"overlap": r.darkened, "orphan": r.orphaned} {
			void, tooMany := voids(runs)
			if void > 0 {
				t.Logf("%s, %s: %d of %d runs are void, for the machine is too busy", r.name, fault, void, len(runs))
			}
			if tooMany {
				t.Errorf("%s, %s: the runs that are not void prove too little", r.name, fault)
			}
		}
	}
	if *write != "" && !t.Failed() {
		writeTable(t, *write, table(t, reports))
	}
}

// voids counts the runs that are void. More than a fifth, and one, are too many: each was made six times.
func voids(runs []bool) (n int, tooMany bool) {
	for _, void := range runs {
		if void {
			n++
		}
	}
	return n, n > 1+len(runs)/5
}

// measure runs the faults of one library side by side.
func measure(t *testing.T, r *report) {
	var mu sync.Mutex
	shared := newSite(t, r.library)
	for _, f := range faults {
		if *oneFault != "" && *oneFault != f.name || r.fault != "" && r.fault != f.name {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s, atOnce := shared, *atOnce
			if f.name == "tokens" { // nobody else may be hurt by a server that loses its keys
				s, atOnce = newSite(t, r.library), 1
			}
			free := make(chan struct{}, atOnce)
			t.Run("runs", func(t *testing.T) {
				var running sync.WaitGroup
				defer running.Wait()
				for n := range *runs {
					free <- struct{}{}
					running.Go(func() {
						defer func() { <-free }()
						t.Run(fmt.Sprint(n), func(t *testing.T) {
							f.run(t, s, fmt.Sprintf("%s-%04d", f.name, n), r, &mu)
						})
					})
				}
			})
		})
	}
}

// TestVoids: a run whose overlaps are all void proves nothing, however few they are.
func TestVoids(t *testing.T) {
	for _, c := range []struct {
		void, runs int
		tooMany    bool
	}{{0, 0, false}, {1, 2, false}, {2, 2, true}, {3, 10, false}, {4, 10, true}, {41, 200, false}, {42, 200, true}} {
		runs := make([]bool, c.runs)
		for i := range c.void {
			runs[i] = true
		}
		if n, tooMany := voids(runs); n != c.void || tooMany != c.tooMany {
			t.Errorf("%d of %d runs are void: got %d, %t", c.void, c.runs, n, tooMany)
		}
	}
}
