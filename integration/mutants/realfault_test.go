package mutants

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// realFault is the fault of histories on real servers that have to kill a mutant.
type realFault struct{ deployment, fault string }

// realHistories are enough: each meets the fault for its whole length.
const realHistories = 4

// hunt runs histories on real servers with the mutant, and returns nil if none is judged
// wrong. Those without the mutant must not be.
func (r realFault) hunt(t *testing.T, m mutant, planted string) *kill {
	t.Helper()
	if output, ok := r.run(t, mutant{name: "no fault at all"}, ""); !ok {
		t.Errorf("%s on %s, without a planted fault:\n%s", r.fault, r.deployment, output)
		return nil
	}
	output, ok := r.run(t, m, planted)
	if ok {
		return nil
	}
	found := regexp.MustCompile(`\d+ violations, the history is in \S+\n([^\n]{0,150})`).FindStringSubmatch(output)
	if found == nil {
		t.Errorf("%s ends real histories without a finding:\n%s", m.name, output[:min(len(output), 2000)])
		return nil
	}
	k := &kill{seed: "-", faults: r.fault + " on " + r.deployment, checker: "real histories", what: found[1]}
	t.Logf("%s: %v", m.name, k)
	return k
}

func (r realFault) run(t *testing.T, m mutant, planted string) (output string, ok bool) {
	t.Helper()
	folder := filepath.Join("..", "real")
	program := compile(t, m, planted, folder)
	if program == "" {
		return "it does not compile", false
	}
	run := exec.Command(program, "-test.run=^TestHistories$", "-test.v", "-test.timeout=5m", "-real.out", t.TempDir(),
		"-real.deployment", r.deployment, "-real.fault", r.fault, "-real.histories", fmt.Sprint(realHistories))
	run.Dir = folder
	text, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(text), err == nil
}
