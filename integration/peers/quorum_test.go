package peers

import (
	"flag"
	"testing"
	"time"
)

var (
	quorumReps  = flag.Int("peers.quorum.reps", 1, "repetitions of everything that TestQuorum measures")
	quorumTime  = flag.Duration("peers.quorum.time", 100*time.Millisecond, "length of each measurement of TestQuorum")
	quorumLease = flag.Duration("peers.quorum.lease", 2*time.Second, "leases of TestQuorum")
	quorumLong  = flag.Duration("peers.quorum.long", 3*time.Second, "leases where TestQuorum looks for orphans: far longer than a second")
	quorumRuns  = flag.Int("peers.quorum.runs", 2, "lost replies of each kind in a repetition of TestQuorum")
	quorumWrite = flag.String("peers.quorum.write", "", "have TestQuorum run all libraries, and write its tables to this `file`, in docs unless it names a directory")
)

// standing is all that one library has shown over three servers.
type standing struct {
	majority
	paces   map[string][]pace
	orphans map[state]orphans
	order   order
}

// TestQuorum runs dlock and redsync over the same three servers, side by side. It
// asserts what dlock promises; what is measured is only reported.
func TestQuorum(t *testing.T) {
	var all []*standing
	for _, l := range majorities {
		if !l.slow || *quorumWrite != "" {
			all = append(all, &standing{majority: l, paces: map[string][]pace{}, orphans: map[state]orphans{}})
		}
	}
	patient := startMasters(t, *quorumLong)
	watched := patient.watched(t)
	m := startMasters(t, *quorumLease)
	began := time.Now()
	for rep := range *quorumReps {
		for i := range all {
			s := all[(i+rep)%len(all)] // nobody is always the first
			t.Run(s.name, func(t *testing.T) { s.measure(t, m, rep) })
		}
	}
	watched()
	for rep := range *quorumReps {
		for _, s := range all {
			if !s.line {
				t.Run(s.name, func(t *testing.T) { s.lose(t, patient, m, rep) })
			}
		}
	}
	text := quorumTable(t, m, all)
	t.Logf("in %v\n\n%s", time.Since(began).Round(time.Second), text)
	if *quorumWrite != "" && !t.Failed() {
		writeQuorum(t, *quorumWrite, text)
	}
}

// measure runs all paces once.
func (s *standing) measure(t *testing.T, m *masters, rep int) {
	if s.dlock {
		m.grown(t) // some server has just been dead
	}
	for _, scenario := range paces {
		if s.line && scenario.name != line {
			continue
		}
		p := scenario.run(t, m, s.majority, rep%len(m.servers), *quorumTime)
		s.paces[scenario.name] = append(s.paces[scenario.name], p)
		if !s.dlock {
			continue
		}
		if len(p.pairs) == 0 || p.failed > 0 {
			t.Errorf("%s: %d pairs, and %d that failed, the first: %v", scenario.name, len(p.pairs), p.failed, p.first)
		}
		if p.both > 0 {
			t.Errorf("%s: two held at once, %d times", scenario.name, p.both)
		}
	}
}

// lose loses replies of the patient servers, and what the others know: dlock does without a server that has
// lost its keys for as long as a lease.
func (s *standing) lose(t *testing.T, patient, m *masters, rep int) {
	for reply, o := range patient.orphaned(t, s.majority, rep, *quorumRuns) {
		sum := s.orphans[reply]
		sum.add(o)
		s.orphans[reply] = sum
		if s.dlock && (o.kept > 0 || o.blocked > 0) {
			t.Errorf("a second after lost replies (%v) of %d locks nodes keep %d, and %d are not free", reply, o.runs, o.kept, o.blocked)
		}
	}
	o := m.tokens(t, s.majority, 20)
	s.order.grants, s.order.fallen, s.order.some = s.order.grants+o.grants, s.order.fallen+o.fallen, s.order.some || o.some
	if s.dlock && (!o.some || o.fallen > 0) {
		t.Errorf("of the tokens of %d grants %d were not greater than the one before", o.grants, o.fallen)
	}
}
