package peers

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/section"
)

// quorumTable is what was measured over three servers, in Markdown.
func quorumTable(t testing.TB, m *masters, all []*standing) string {
	t.Helper()
	var b strings.Builder
	redis := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(m.servers[0].MustDo("INFO", "server"))
	if redis == nil {
		t.Fatal("the server does not say its version")
	}
	fmt.Fprintf(&b, "%s, %s, %s/%s, %d processors, which clients and servers share; three servers of Redis %s without persistence, redsync %s on go-redis %s.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), redis[1], version(t, redsyncModule), version(t, goRedisModule))
	fmt.Fprintf(&b, "Leases of %v, and of %v where replies are lost. Medians of %d repetitions of %v; in brackets the least and the greatest.\n\n", *quorumLease, *quorumLong, *quorumReps, *quorumTime)

	var rates, times, losses [][]string
	for _, s := range all {
		name := "**" + s.name + "**"
		if !s.dlock {
			name = s.name
		}
		rates = append(rates, []string{name, s.rate(one, pace.rate), s.rate(many, pace.rate), s.rate(line, pace.rate), s.rate(line, pace.handovers)})
		if s.line {
			continue
		}
		times = append(times, []string{name, s.time(one, 0.5), s.time(one, 0.99), s.time(hung, 0.5), s.time(hung, 0.99), s.time(dead, 0.5), s.time(dead, 0.99)})
		cut, swallowed := s.orphans[cutReply], s.orphans[mute]
		losses = append(losses, []string{
			name, of(cut.kept, cut.runs*3) + ", " + of(swallowed.kept, swallowed.runs*3),
			of(cut.blocked, cut.runs) + ", " + of(swallowed.blocked, swallowed.runs), s.order.String(),
		})
	}
	b.WriteString(section.Table([]string{"Per second", "locked and unlocked, 1 goroutine", "64 goroutines, a name each", "turns of 8 goroutines on one name", "of these, to another goroutine"}, rates) + "\n")
	b.WriteString(section.Table([]string{"Lock and unlock", "all well: p50", "p99", "one node hung: p50", "p99", "one node dead: p50", "p99"}, times) + "\n")
	b.WriteString(section.Table([]string{"After lost replies", "holds left at nodes: cut, swallowed", "locks not free: cut, swallowed", "tokens strictly increase"}, losses) + "\n")
	for _, s := range all {
		fmt.Fprintf(&b, "- %s: %s.\n", s.name, s.use)
		s.notes(&b)
	}
	return b.String()
}

// notes are what the figures do not say.
func (s *standing) notes(b *strings.Builder) {
	for _, scenario := range paces {
		failed, both, few := 0, 0, -1
		for _, p := range s.paces[scenario.name] {
			failed, both = failed+p.failed, both+p.both
			if few < 0 || len(p.pairs) < few {
				few = len(p.pairs)
			}
		}
		if failed > 0 {
			fmt.Fprintf(b, "- %s, %s: calls that failed: %d.\n", s.name, scenario.name, failed)
		}
		if both > 0 {
			fmt.Fprintf(b, "- %s, %s: times that two held at once: %d.\n", s.name, scenario.name, both)
		}
		if few >= 0 && few < 100 {
			fmt.Fprintf(b, "- %s, %s: a repetition had time for %d, so p99 is the longest.\n", s.name, scenario.name, few)
		}
	}
	if void := s.orphans[cutReply].void + s.orphans[mute].void; void > 0 {
		fmt.Fprintf(b, "- %s: lost replies that are not counted, as the request did not come in time: %d.\n", s.name, void)
	}
}

func (s *standing) rate(scenario string, value func(pace) float64) string {
	return s.figure(scenario, value, func(x float64) string { return fmt.Sprintf("%.0f", x) })
}

func (s *standing) time(scenario string, part float64) string {
	return s.figure(scenario, func(p pace) float64 { return p.quantile(part) }, func(x float64) string {
		switch d := time.Duration(x * 1e9); {
		case d < 10*time.Millisecond:
			return fmt.Sprintf("%.2f ms", x*1e3)
		case d < time.Second:
			return fmt.Sprintf("%.0f ms", x*1e3)
		}
		return fmt.Sprintf("%.1f s", x)
	})
}

// figure is the median of all repetitions, the least and the greatest.
func (s *standing) figure(scenario string, value func(pace) float64, show func(float64) string) string {
	var all []float64
	for _, p := range s.paces[scenario] {
		all = append(all, value(p))
	}
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	return fmt.Sprintf("%s (%s – %s)", show(all[len(all)/2]), show(all[0]), show(all[len(all)-1]))
}

func (o order) String() string {
	switch {
	case !o.some:
		return "no: there are none"
	case o.fallen > 0:
		return fmt.Sprintf("no: not in %s", of(o.fallen, o.grants))
	}
	return fmt.Sprintf("yes: in %s, while each node lost all keys once in a repetition", of(o.grants, o.grants))
}

// writeQuorum puts the tables into their section of the file.
func writeQuorum(t testing.TB, file, text string) {
	t.Helper()
	if filepath.Base(file) == file {
		file = filepath.Join("..", "..", "docs", file)
	}
	command := fmt.Sprintf("go test -run=TestQuorum -timeout=1h -peers.quorum.reps=%d -peers.quorum.time=%v -peers.quorum.lease=%v -peers.quorum.long=%v -peers.quorum.runs=%d -peers.quorum.write=%s",
		*quorumReps, *quorumTime, *quorumLease, *quorumLong, *quorumRuns, filepath.Base(file))
	if err := section.Write(file, "redsync", "Written by `"+command+"` in `integration/peers`.\n\n"+text); err != nil {
		t.Fatal(err)
	}
}
