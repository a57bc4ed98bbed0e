package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hangs is how many cases may not end before the rest is left out: each costs
// its whole deadline.
const hangs = 20

// verdicts collect how cases ended.
type verdicts struct {
	mu      sync.Mutex
	failed  []string // names of cases
	skipped []string // of cases that need two handles
	hung    int
}

func (v *verdicts) add(c testCase, got outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if got.report != "" {
		v.failed = append(v.failed, c.name)
	}
	if got.hung {
		v.hung++
	}
}

func (v *verdicts) skip(c testCase, why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.needs.has(twoHandles) && strings.Contains(why, "Suite.Peer") {
		v.skipped = append(v.skipped, c.name)
	}
}

func (v *verdicts) tooManyHang() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hung >= hangs
}

// summary ends the report of the suite: what was left out for want of a second
// handle, and which failures to read first. Cases come simplest first.
func (p *plan) summary(t testing.TB) {
	t.Helper()
	for _, line := range p.summaryLines() {
		t.Log(line)
	}
}

func (p *plan) summaryLines() (lines []string) {
	v := &p.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	order := make(map[string]int)
	for i, c := range allCases() {
		order[c.name] = i
	}
	simplest := func(a, b string) int { return order[a] - order[b] }
	slices.SortFunc(v.failed, simplest)
	slices.SortFunc(v.skipped, simplest)
	if n := len(v.skipped); n > 0 {
		lines = append(lines, fmt.Sprintf("%d cases need two handles on the same locks and were skipped for want of Suite.Peer: %s", n, strings.Join(v.skipped, ", ")))
	}
	if n := len(v.failed); n > 0 {
		lines = append(lines, fmt.Sprintf("%d cases fail. Simplest first: %s", n, strings.Join(v.failed, ", ")))
	}
	return lines
}
