package mutants

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// realFault is the fault of histories on real servers that have to kill a mutant. Histories
// with other faults must not.
type realFault struct{ deployment, fault string }

const (
	realHistories = 4 // at once; each meets the fault for its whole length
	realRounds    = 8 // of so many, for a mutant that not each history finds
)

var (
	wrongHistory  = regexp.MustCompile(`\d+ violations, the history is in \S+\n\s*([^\n]{0,150})`)
	realHistory   = regexp.MustCompile(`(?m)^\s*all\s+(\d+)\s+(\d+)\s`) // histories, and void ones among them
	brokenHistory = regexp.MustCompile(`(?m)^\s*not a history: .*`)
)

// judge says what the output of real histories tells: the first violation of one that was judged
// wrong, or "". It is an error if there is none and no history is evidence.
func judge(output string) (wrong string, err error) {
	if found := wrongHistory.FindStringSubmatch(output); found != nil {
		return found[1], nil
	}
	all := realHistory.FindStringSubmatch(output)
	if all == nil {
		return "", fmt.Errorf("real histories end without a result:\n%s", output[:min(len(output), 2000)])
	}
	histories, _ := strconv.Atoi(all[1])
	void, _ := strconv.Atoi(all[2])
	if histories > void {
		return "", nil
	}
	broken := brokenHistory.FindAllString(output, -1)
	return "", fmt.Errorf("of the real histories %d are void, in %d the rig failed, and none is evidence:\n%s", void, len(broken), output)
}

// hunt runs histories on real servers with the mutant, and returns nil if none is judged
// wrong. Those without the mutant must not be.
func (r realFault) hunt(t *testing.T, m mutant, planted string) (*kill, error) {
	t.Helper()
	plain, err := compile(t, mutant{name: "no fault at all"}, "", realFolder)
	if err != nil {
		return nil, err
	}
	program, err := compile(t, m, planted, realFolder)
	if err != nil {
		return nil, err
	}
	if wrong, err := r.run(t, plain, "-real.fault"); err != nil {
		return nil, err
	} else if wrong != "" {
		return nil, fmt.Errorf("histories with %s on %s are wrong without a planted fault: %s", r.fault, r.deployment, wrong)
	}
	if wrong, err := r.run(t, program, "-real.without"); err != nil {
		return nil, err
	} else if wrong != "" {
		t.Errorf("%s: histories with other faults than %s on %s find it too: %s", m.name, r.fault, r.deployment, wrong)
	}
	for range realRounds {
		wrong, err := r.run(t, program, "-real.fault")
		if err != nil {
			return nil, err
		}
		if wrong != "" {
			k := &kill{seed: "-", faults: r.fault + " on " + r.deployment, checker: "real histories", what: wrong}
			t.Logf("%s: %v", m.name, k)
			return k, nil
		}
	}
	return nil, nil
}

var realFolder = filepath.Join("..", "real")

// run runs histories with the fault alone, or with others, and judges what they print. Some may
// be void, which fails the run.
func (r realFault) run(t *testing.T, program, faults string) (wrong string, err error) {
	t.Helper()
	run := exec.Command(program, "-test.run=^TestHistories$", "-test.v", "-test.timeout=5m", "-real.out", t.TempDir(),
		"-real.deployment", r.deployment, faults, r.fault, "-real.histories", fmt.Sprint(realHistories))
	run.Dir = realFolder
	output, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return "", err
	}
	return judge(string(output))
}

// A run that says nothing of a mutant is an error, and not a mutant that survives.
func TestVerdictOfRealHistories(t *testing.T) {
	const (
		head  = "=== NAME  TestHistories\n        on        fault     histories  void operations hand-overs\n"
		wrong = "    histories_test.go:109: etcd1 with [\"compacted\"]: 2 violations, the history is in /tmp/x:\n        1a is held, though released\n"
		none  = "        all                         0     0          0          0\n        not a history: etcd1, compacted: the rig: no server\n"
	)
	for name, c := range map[string]struct{ output, wrong, err string }{
		"a violation":          {wrong + head + "        all                         4     0        650        168\n", "1a is held, though released", ""},
		"no violation":         {head + "        all                         4     3        650        168  void: only 37 operations\n", "", ""},
		"violation in void":    {wrong + head + "        all                         1     1         30          3\n", "1a is held, though released", ""},
		"void ones only":       {head + "        all                         4     4         30          3\n", "", "4 are void, in 0 the rig failed"},
		"failed rigs only":     {head + none, "", "0 are void, in 1 the rig failed"},
		"a crash":              {"panic: runtime error\n", "", "end without a result"},
		"it runs for too long": {"panic: test timed out after 5m0s\n", "", "end without a result"},
	} {
		got, err := judge(c.output)
		if got != c.wrong || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
