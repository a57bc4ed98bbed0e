package mutants

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// namedTest is a test of the library that has to kill a mutant.
type namedTest struct{ folder, name string }

// parseTest reads "folder TestName", the folder from the root of the repository. The
// test has to exist.
func parseTest(t *testing.T, text string) namedTest {
	t.Helper()
	folder, name, _ := strings.Cut(text, " ")
	by := namedTest{folder, name}
	files, err := filepath.Glob(filepath.Join(by.path(), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc "+name+"(t *testing.T) {") {
			return by
		}
	}
	t.Fatalf("there is no test %q", text)
	return by
}

// path returns the folder of the test, from this one.
func (by namedTest) path() string { return filepath.Join("..", "..", filepath.FromSlash(by.folder)) }

// hunt runs the test with the mutant, and returns nil if the test passes. The test
// has to pass without the mutant.
func (by namedTest) hunt(t *testing.T, m mutant, planted string) (*kill, error) {
	t.Helper()
	if output, ok, err := by.run(t, mutant{name: "no fault at all"}, ""); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("%s fails without a fault:\n%s", by.name, output)
	}
	output, ok, err := by.run(t, m, planted)
	if ok || err != nil {
		return nil, err
	}
	if !strings.Contains(output, "--- FAIL: "+by.name) {
		return nil, fmt.Errorf("%s ends %s without a failure:\n%s", m.name, by.name, output[:min(len(output), 2000)])
	}
	t.Logf("%s: %s fails", m.name, by.name)
	return &kill{seed: "-", faults: "-", checker: by.name}, nil
}

// run reports whether the test passes, with its output. A test that does not exist
// fails.
func (by namedTest) run(t *testing.T, m mutant, planted string) (output string, ok bool, err error) {
	t.Helper()
	program, err := compile(t, m, planted, by.path())
	if err != nil {
		return "", false, err
	}
	run := exec.Command(program, "-test.v", "-test.timeout=2m", "-test.run=^"+by.name+"$")
	run.Dir = by.path()
	text, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return "", false, err
	}
	return string(text), err == nil && strings.Contains(string(text), "--- PASS: "+by.name), nil
}
