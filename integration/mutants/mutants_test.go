// Package mutants plants faults in the client and in the memory store, one at a
// time. The simulation has to kill each mutant within a thousand histories. A mutant
// that survives shows a fault that the simulation cannot find.
//
// Faults in the stores need histories on real servers: the table names the deployment
// and the fault that the servers meet. A few histories with other faults must not find them.
//
// Some faults break no rule that the simulation checks: they cost time, or keep a
// place at the store for some milliseconds. The table names a test of the library for
// each of these, and that test has to kill the mutant.
//
// No fault is in the code. Each is an overlay of one file, with which the simulation or
// the test is compiled.
//
//	go test ./mutants -v                           # all compile, and the first is killed
//	go test ./mutants -v -mutants.all              # all are killed; this takes minutes
//	go test ./mutants -v -mutants.only='grant|late' # mutants with such names
package mutants

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/section"
)

var (
	all   = flag.Bool("mutants.all", false, "kill all mutants, not only the first")
	only  = flag.String("mutants.only", "", "kill the mutants whose names match this regular expression")
	first = flag.Uint64("mutants.first", 1, "the first seed of the histories")
	write = flag.String("mutants.write", "", "write the results into the section of this file that is between the marks")
)

const (
	histories = 1000 // in which each mutant has to be killed
	few       = 100  // enough to show that the simulation finds nothing without a fault
)

//go:embed testdata/mutants.txt
var table string

// mutant is a fault to be planted in one file.
type mutant struct {
	name, source string // source: a row of docs/faults.md, or a promise
	file         string
	is, becomes  string
	by           namedTest // the test that kills it; zero: the simulation does
	scene        string    // the scene that finds it, and plain histories do not; "": any
	real         realFault // histories on real servers that kill it; zero: others do
}

var heading = regexp.MustCompile(`^(.+) \[(.+)\]$`)

func mutants(t *testing.T) (list []mutant) {
	t.Helper()
	for i, block := range strings.Split(table, "\n\n") {
		lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
		if strings.HasPrefix(lines[0], "#") {
			continue
		}
		title := heading.FindStringSubmatch(lines[0])
		if title == nil || len(lines) < 4 {
			t.Fatalf("block %d: %q is not a mutant", i, lines[0])
		}
		m := mutant{name: title[1], source: title[2], file: lines[1]}
		for _, line := range lines[2:] {
			switch sign, text := line[:1], strings.TrimPrefix(line[1:], " "); sign {
			case "-":
				m.is += text + "\n"
			case "+":
				m.becomes += text + "\n"
			case "!":
				m.by = parseTest(t, text)
			case "$":
				m.real.deployment, m.real.fault, _ = strings.Cut(text, " ")
			case "@":
				m.scene = text
			default:
				t.Fatalf("%s: unknown sign in %q", m.name, line)
			}
		}
		list = append(list, m)
	}
	return list
}

// TestPageHasEachMutant: docs/planted-faults.md has a row for each, with its source and the test that kills it.
func TestPageHasEachMutant(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "planted-faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`\*\*(survives|no verdict)\*\*`).Match(page) {
		t.Error("the page has a mutant that was not killed")
	}
	for _, m := range mutants(t) {
		row := fmt.Sprintf("\n| %s | %s | ", m.name, m.source)
		if m.by != (namedTest{}) {
			row += "- | - | " + m.by.name + " |"
		}
		if !strings.Contains(string(page), row) {
			t.Errorf("the page has no row that begins with %q", row)
		}
	}
}

// TestFigureHasADate: how many docs/reliability.md says were found is what a run found, on the date that it names.
func TestFigureHasADate(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	dated := regexp.MustCompile(`found, \d+ \w+ 20\d\d `)
	for _, row := range regexp.MustCompile(`\n\|.*\d of \d+ found.*`).FindAllString(string(page), -1) {
		if !dated.MatchString(row) {
			t.Errorf("no date is named in %q", row)
		}
	}
}

// TestMutants plants each chosen mutant and checks that it is killed.
func TestMutants(t *testing.T) {
	if *write != "" && (!*all || *only != "") {
		t.Fatal("-mutants.write writes the whole table: it needs -mutants.all, and no -mutants.only")
	}
	list := mutants(t)
	planted := make([]string, len(list))
	for i, m := range list {
		planted[i] = plant(t, m)
	}
	if t.Failed() {
		return
	}
	sane := few
	if *all {
		sane = histories
	}
	if k, err := hunt(t, mutant{name: "no fault at all"}, "", "", sane); k != nil || err != nil {
		t.Fatalf("without a fault: %v, %v", k, err)
	}
	chosen := regexp.MustCompile(*only)
	var rows [][]string
	killed := 0
	for i, m := range list {
		if *only == "" && !*all && i > 0 || !chosen.MatchString(m.name) {
			continue
		}
		k, err := kills(t, m, planted[i])
		switch {
		case err != nil:
			t.Errorf("%s: the run fails, and says nothing of it: %v", m.name, err)
			k = &kill{checker: "**no verdict**"}
		case k == nil:
			t.Errorf("%s survives", m.name)
			k = &kill{checker: "**survives**"}
		default:
			killed++
		}
		rows = append(rows, []string{m.name, m.source, k.seed, k.faults, k.checker})
	}
	t.Logf("%d of %d mutants are killed", killed, len(rows))
	if *write == "" {
		return
	}
	text := fmt.Sprintf("%d of %d are killed, each within %d histories or by the test that is named.\n\n%s", killed, len(rows), histories,
		section.Table([]string{"Planted fault", "Source", "Killed by history", "With", "Found by"}, rows))
	if err := section.Write(*write, "mutants", text); err != nil {
		t.Error(err)
	}
}

// kills returns how the mutant was killed, or nil if it survives. An error says why neither is known.
func kills(t *testing.T, m mutant, planted string) (*kill, error) {
	t.Helper()
	if m.by != (namedTest{}) {
		return m.by.hunt(t, m, planted)
	}
	if m.real != (realFault{}) {
		return m.real.hunt(t, m, planted)
	}
	if m.scene != "" {
		if k, err := hunt(t, m, planted, "plain", histories); err != nil {
			return nil, err
		} else if k != nil {
			t.Errorf("%s: plain histories find it too: %v", m.name, k)
		}
	}
	return hunt(t, m, planted, m.scene, histories)
}

// plant writes a copy of the file with the fault in it, and returns the path of the copy.
func plant(t *testing.T, m mutant) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	// The table has the lines without the indentation that they have in the file.
	lines := strings.Split(string(source), "\n")
	want := strings.Split(strings.TrimSuffix(m.is, "\n"), "\n")
	found, indent := -1, ""
	for i := range lines {
		if in, ok := beginsWith(lines[i:], want); ok {
			if found >= 0 {
				t.Errorf("%s: %s has these lines twice", m.name, m.file)
			}
			found, indent = i, in
		}
	}
	if found < 0 {
		t.Errorf("%s: %s does not have these lines; write the mutant for the new code", m.name, m.file)
		return ""
	}
	var text []string
	text = append(text, lines[:found]...)
	for line := range strings.SplitSeq(strings.TrimSuffix(m.becomes, "\n"), "\n") {
		text = append(text, indent+line)
	}
	text = append(text, lines[found+len(want):]...)
	path := filepath.Join(t.TempDir(), filepath.Base(m.file))
	if err := os.WriteFile(path, []byte(strings.Join(text, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// beginsWith reports whether lines begin with the wanted ones, all with the same
// additional indentation.
func beginsWith(lines, want []string) (indent string, ok bool) {
	if len(lines) < len(want) {
		return "", false
	}
	indent = lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	for i, line := range want {
		if lines[i] != indent+line {
			return "", false
		}
	}
	return indent, true
}

// kill says how a mutant was killed: the seed of the history and the faults in it,
// the checker or test that failed, and its message.
type kill struct{ seed, faults, checker, what string }

func (k *kill) String() string {
	return fmt.Sprintf("history %s (%s), %s: %s", k.seed, k.faults, k.checker, k.what)
}

var foundBy = regexp.MustCompile(`seed (\d+) \(([^)]*)\): ([^:\n]+): ([^\n]{0,100})`)

// compile builds the tests of the package in a folder with the mutant, and returns the
// path of the program.
func compile(t *testing.T, m mutant, planted, folder string) (program string, err error) {
	t.Helper()
	replaced := map[string]string{}
	if planted != "" {
		replaced[m.file] = planted
	}
	program = filepath.Join(t.TempDir(), "mutant.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay(t, replaced), "-o", program, ".")
	build.Dir = folder
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile:\n%s", m.name, output)
	}
	return program, nil
}

// overlay writes what has the go command read planted files in place of those of the library.
func overlay(t *testing.T, planted map[string]string) (path string) {
	t.Helper()
	replace := map[string]string{}
	for file, by := range planted {
		original, err := filepath.Abs(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = by
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMutantsCompile compiles each mutant, those of different files together.
func TestMutantsCompile(t *testing.T) {
	left := mutants(t)
	for len(left) > 0 {
		planted, packages, names := map[string]string{}, map[string]bool{}, []string{}
		left = slices.DeleteFunc(left, func(m mutant) bool {
			if planted[m.file] != "" {
				return false
			}
			planted[m.file] = plant(t, m)
			packages["./"+filepath.ToSlash(filepath.Dir(m.file))] = true
			names = append(names, m.name)
			return true
		})
		if t.Failed() {
			return
		}
		build := exec.Command("go", append([]string{"build", "-overlay", overlay(t, planted)}, slices.Sorted(maps.Keys(packages))...)...)
		build.Dir = filepath.Join("..", "..")
		if output, err := build.CombinedOutput(); err != nil {
			t.Errorf("one of these does not compile: %q\n%s", names, output)
		}
	}
}

// hunt runs up to n histories of a scene, or of any, with the mutant. It returns the first
// that kills the mutant, or nil.
func hunt(t *testing.T, m mutant, planted, scene string, n int) (*kill, error) {
	t.Helper()
	sim := filepath.Join("..", "sim")
	program, err := compile(t, m, planted, sim)
	if err != nil {
		return nil, err
	}
	run := exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=5m", "-sim.out", t.TempDir(),
		"-sim.first", fmt.Sprint(*first), "-sim.histories", fmt.Sprint(n), "-sim.enough=1", "-sim.scene="+scene)
	run.Dir = sim
	began := time.Now()
	output, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	by := foundBy.FindStringSubmatch(string(output))
	if by == nil {
		if err != nil {
			err = fmt.Errorf("%s ends the simulation without a finding:\n%s", m.name, output[:min(len(output), 2000)])
		}
		return nil, err
	}
	k := &kill{by[1], by[2], by[3], by[4]}
	t.Logf("%s: %v, in %v", m.name, k, time.Since(began).Round(100*time.Millisecond))
	return k, nil
}
