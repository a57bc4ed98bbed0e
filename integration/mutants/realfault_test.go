package mutants

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// realFault is the fault of histories on real servers that have to kill a mutant.
type realFault struct{ deployment, fault string }

// realHistories are enough: each meets the fault for its whole length.
const realHistories = 4

var wrongHistory = regexp.MustCompile(`\d+ violations, the history is in \S+\n\s*([^\n]{0,150})`)

// hunt runs histories on real servers with the mutant, and returns nil if none is judged
// wrong. Those without the mutant must not be.
func (r realFault) hunt(t *testing.T, m mutant, planted string) *kill {
	t.Helper()
	output := r.run(t, mutant{name: "no fault at all"}, "")
	if wrong := wrongHistory.FindStringSubmatch(output); wrong != nil || !strings.Contains(output, " violations ") {
		t.Errorf("%s on %s, without a planted fault:\n%s", r.fault, r.deployment, output)
		return nil
	}
	output = r.run(t, m, planted)
	wrong := wrongHistory.FindStringSubmatch(output)
	if wrong == nil {
		t.Logf("%s:\n%s", m.name, output)
		return nil
	}
	k := &kill{seed: "-", faults: r.fault + " on " + r.deployment, checker: "real histories", what: wrong[1]}
	t.Logf("%s: %v", m.name, k)
	return k
}

// run returns what so many histories print. Some may be void, which fails the run.
func (r realFault) run(t *testing.T, m mutant, planted string) (output string) {
	t.Helper()
	folder := filepath.Join("..", "real")
	program := compile(t, m, planted, folder)
	if program == "" {
		return "it does not compile"
	}
	run := exec.Command(program, "-test.run=^TestHistories$", "-test.v", "-test.timeout=5m", "-real.out", t.TempDir(),
		"-real.deployment", r.deployment, "-real.fault", r.fault, "-real.histories", fmt.Sprint(realHistories))
	run.Dir = folder
	text, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(text)
}
