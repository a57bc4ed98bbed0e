package real

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
)

// few is how many histories are too few for deployments that are slow to start.
const few = 10

func TestHistories(t *testing.T) {
	if *judgeAgain != "" {
		again(t, *judgeAgain)
		return
	}
	on := deployments
	if *histories < few && *deployment == "" {
		// Servers in Java take long to start, which make test spends elsewhere.
		on = slices.DeleteFunc(slices.Clone(on), func(d string) bool { return slices.Contains(onZookeeper, d) })
	}
	if *deployment != "" {
		if !slices.Contains(on, *deployment) {
			t.Fatalf("no deployment %q; there are %q", *deployment, on)
		}
		on = []string{*deployment}
	}
	root := *seed
	if root == 0 {
		root = rand.Uint64()
	}
	t.Logf("-real.seed=%d", root)
	resource := redistest.Start(t)
	sum := &table{rows: map[row]*tally{}}
	began := time.Now()
	t.Run("of", func(t *testing.T) {
		// In turns, so that those that are slow to start are not all there is to do.
		for i := range *histories {
			for _, d := range on {
				seed := mix(root, d, i)
				faults := choose(root, d, i)
				if len(faults) == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d", d, i), func(t *testing.T) {
					t.Parallel()
					if *within > 0 && time.Since(began) > *within {
						return
					}
					one(t, sum, d, seed, faults, resource)
				})
			}
		}
	})
	t.Logf("in %v\n%s", time.Since(began).Round(time.Second), sum)
	total, void, undecided := sum.total()
	if n := len(sum.rigs); n > 1+total/20 {
		t.Errorf("in %d of %d histories the rig failed", n, total+n)
	}
	if total == 0 {
		t.Errorf("no history was run; is there a fault %q?", *fault)
	}
	// One in twenty is what is usual. Of the few of a short run, chance makes more void.
	if void > 3+total/5 {
		t.Errorf("%d of %d histories are void", void, total)
	}
	// Whether a history has an order can take for ever to find out. One in 250 is
	// what is known of those here; it proves nothing, and more than that is an error.
	if undecided > 1+total/100 {
		t.Errorf("%d of %d histories are undecided", undecided, total)
	}
}

// one runs and judges one history.
func one(t *testing.T, sum *table, deployment string, seed uint64, faults []kind, resource *redistest.Server) {
	r := &rig{TB: t}
	var h *history
	var wrong, left []string
	var e *evidence
	broken := r.run(func() {
		h = newHistory(r, deployment, seed, faults, resource)
		h.run()
		wrong = h.stop()
		left = h.empty()
		e = h.evidence()
	})
	if broken != "" {
		sum.broken(deployment, faults, broken)
		r.run(func() {
			if h != nil { // for a reader: when its faults were is not known
				t.Logf("%s with %q: what was recorded is in %s", deployment, h.plan.Faults, h.keep(&evidence{}, &judgement{void: broken}))
			}
		})
		return
	}
	j := e.judge()
	j.outside = slices.Concat(wrong, left, h.excluded())
	j.violations = slices.Concat(j.outside, j.violations)
	j.void = h.void(j)
	sum.add(h.plan, j)
	switch {
	case len(j.violations) > 0:
		t.Errorf("%s with %q: %d violations, the history is in %s:\n%s", deployment, h.plan.Faults,
			len(j.violations), h.keep(e, j), strings.Join(j.violations[:min(10, len(j.violations))], "\n"))
	case len(j.undecided) > 0:
		t.Logf("%s with %q: %s, the history is in %s", deployment, h.plan.Faults, j.undecided[0], h.keep(e, j))
	case *keepAll:
		t.Logf("%s with %q %s: the history is in %s", deployment, h.plan.Faults, j.void, h.keep(e, j))
	}
}

// wakes is how long a server that stood still may take until it knows what it has
// missed; that it goes on may be recorded as much too late.
const wakes = 250 * time.Millisecond

func (h *history) evidence() *evidence {
	e := &evidence{
		records: h.records, Killed: map[int]moment{}, Log: map[string][]access{}, TTL: h.plan.TTL, Etcd: h.site.etcd != nil, Ends: never,
		Quorum: h.plan.Deployment == redisQuorum,
	}
	for _, c := range h.children {
		if c.killed != never {
			e.Killed[c.job.Worker] = c.killed
		}
	}
	for _, name := range h.plan.Names {
		e.Log[name] = taken(h.t, h.resource, h.keys()+name)
	}
	for i, k := range h.kinds {
		e.Forgets = e.Forgets || k.forgets
		e.Doubled = e.Doubled || k.doubles
		e.Longer = e.Longer || k.prolongs
		if k.loses {
			e.Lossy = append(e.Lossy, h.spans[i])
		}
		if k.zombie && h.plan.Deployment == etcdThree {
			e.Lossy = append(e.Lossy, span{h.spans[i].To.plus(-wakes), h.spans[i].To.plus(wakes)})
		}
		if k.moves || k.forgets {
			e.Ends = min(e.Ends, h.spans[i].From)
		}
	}
	// A master that was replaced may go on for a while, and what it grants meanwhile
	// is lost.
	if h.site.moved() {
		e.Lossy = append(e.Lossy, span{h.spans[0].From, never})
		e.Ends = min(e.Ends, h.spans[0].From)
	}
	return e
}

// excluded lists the calls that no fault allows to be like that.
func (h *history) excluded() (wrong []string) {
	for i, f := range h.troubles {
		for _, r := range h.records {
			if f.never != nil && r.isCall() && f.never(r) {
				wrong = append(wrong, fmt.Sprintf("with %q: worker %d was answered %q to its %s of %q, called at %d",
					h.kinds[i].name, r.Worker, r.Outcome, r.Op, r.Name, r.Call))
			}
		}
	}
	return wrong
}

const (
	fewOperations = 40
	fewHandovers  = 10
)

// void says why a history proves nothing.
func (h *history) void(j *judgement) string {
	switch {
	case j.void != "":
		return j.void
	case j.operations < fewOperations:
		return fmt.Sprintf("only %d operations", j.operations)
	case j.handovers < fewHandovers:
		return fmt.Sprintf("only %d hand-overs", j.handovers)
	case h.site.moved() && !slices.ContainsFunc(h.kinds, func(k kind) bool { return k.moves }):
		return "a failover that nobody ordered"
	}
	bit, ended := false, moment(0)
	for i, f := range h.troubles { // of two faults one may leave the other nothing to spoil
		bit = bit || f.bit(h.spans[i])
		ended = max(ended, h.spans[i].To)
	}
	if !bit {
		return strings.Join(h.plan.Faults, " and ") + " made no difference"
	}
	if !slices.ContainsFunc(h.records, func(r record) bool { return r.Op == opLock && r.Outcome == held && r.Return > ended }) {
		return "no lock was taken after the fault"
	}
	return ""
}

// mix makes seeds out of one.
func mix(root uint64, deployment string, i int) uint64 {
	return rand.New(rand.NewPCG(root, uint64(slices.Index(deployments, deployment))<<32|uint64(i))).Uint64()
}

// choose draws the faults of the i-th history. All kinds of a deployment have
// their turn before the first comes again; a quarter of the histories have two.
func choose(root uint64, deployment string, i int) []kind {
	all := slices.DeleteFunc(kindsOn(deployment), func(k kind) bool { return k.name == *without })
	if *fault != "" {
		all = slices.DeleteFunc(all, func(k kind) bool { return k.name != *fault })
		if len(all) == 0 {
			return nil
		}
		return all
	}
	order := rand.New(rand.NewPCG(root, uint64(i/len(all)))).Perm(len(all))
	chosen := []kind{all[order[i%len(all)]]}
	rng := rand.New(rand.NewPCG(mix(root, deployment, i), 1))
	if rng.IntN(4) == 0 {
		var others []kind
		for _, k := range all {
			if k.aside != chosen[0].aside {
				others = append(others, k)
			}
		}
		chosen = append(chosen, others[rng.IntN(len(others))])
	}
	return chosen
}

// table sums up.
type table struct {
	mu   sync.Mutex
	rows map[row]*tally
	rigs []string // histories that came to no end, and why
}

type row struct{ deployment, faults string }

type tally struct {
	histories, operations, handovers, refused, excused, ordered, violations int
	undecided                                                               int
	void                                                                    []string
}

func (s *table) add(p plan, j *judgement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := row{p.Deployment, strings.Join(p.Faults, " + ")}
	t := s.rows[key]
	if t == nil {
		t = &tally{}
		s.rows[key] = t
	}
	t.histories++
	t.operations += j.operations
	t.handovers += j.handovers
	t.refused += j.refused
	t.excused += j.excused
	t.ordered += j.ordered
	t.violations += len(j.violations)
	if len(j.undecided) > 0 {
		t.undecided++
	}
	if j.void != "" {
		t.void = append(t.void, j.void)
	}
}

// broken counts a history whose rig failed.
func (s *table) broken(deployment string, faults []kind, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := deployment
	for _, k := range faults {
		text += ", " + k.name
	}
	s.rigs = append(s.rigs, text+": "+strings.Join(strings.Fields(why), " "))
}

func (s *table) total() (histories, void, undecided int) {
	for _, t := range s.rows {
		histories += t.histories
		void += len(t.void)
		undecided += t.undecided
	}
	return histories, void, undecided
}

func (s *table) String() string {
	var keys []row
	for key := range s.rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b row) int {
		if a.deployment != b.deployment {
			return slices.Index(deployments, a.deployment) - slices.Index(deployments, b.deployment)
		}
		return strings.Compare(a.faults, b.faults)
	})
	var b strings.Builder
	line := func(deployment, faults string, t *tally) {
		fmt.Fprintf(&b, "%-9s %-50s %9d %5d %10d %9d %8d %8d %8d %10d %9d", deployment, faults,
			t.histories, len(t.void), t.operations, t.handovers, t.refused, t.excused, t.ordered, t.violations, t.undecided)
		if len(t.void) > 0 {
			fmt.Fprintf(&b, "  void: %s", strings.Join(t.void, "; "))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%-9s %-50s %9s %5s %10s %9s %8s %8s %8s %10s %9s\n", "on", "fault",
		"histories", "void", "operations", "hand-overs", "refused", "excused", "ordered", "violations", "undecided")
	all := &tally{}
	for _, key := range keys {
		t := s.rows[key]
		line(key.deployment, key.faults, t)
		all.histories += t.histories
		all.operations += t.operations
		all.handovers += t.handovers
		all.refused += t.refused
		all.excused += t.excused
		all.ordered += t.ordered
		all.violations += t.violations
		all.undecided += t.undecided
		all.void = append(all.void, t.void...)
	}
	voids := all.void
	all.void = voids[:len(voids):len(voids)]
	line("all", "", all)
	for _, why := range s.rigs {
		fmt.Fprintf(&b, "not a history: %s\n", why)
	}
	return b.String()
}

// -real.without leaves out a kind of fault, also as the second of a history.
func TestWithout(t *testing.T) {
	defer func() { *without = "" }()
	for _, *without = range []string{"", "worker killed"} {
		found := false
		for i := range 200 {
			found = found || slices.ContainsFunc(choose(1, etcdOne, i), func(k kind) bool { return k.name == "worker killed" })
		}
		if found == (*without != "") {
			t.Errorf("without %q: %v", *without, found)
		}
	}
}
