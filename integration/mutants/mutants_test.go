// Package mutants plants faults in the client and in the memory store, one at a
// time, and lets the simulation find them: each must be killed within a thousand
// histories. What survives would mean that the simulation is blind to it.
//
// The faults are not in the code: each is an overlay of one file that the test
// compiles the simulation with.
//
//	go test ./mutants -v                           # all still apply, and the first dies
//	go test ./mutants -v -mutants.all              # all of them; minutes
//	go test ./mutants -v -mutants.only='baton|late' # those with such names
package mutants

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/section"
)

var (
	all   = flag.Bool("mutants.all", false, "kill all mutants, not only the first")
	only  = flag.String("mutants.only", "", "kill the mutants whose names match this regular expression")
	first = flag.Uint64("mutants.first", 1, "the first seed of the histories")
	write = flag.String("mutants.write", "", "write the table into this file (the section between its marks)")
)

const (
	histories = 1000 // within which each mutant has to die
	few       = 100  // enough to see that nothing is found where nothing is planted
)

//go:embed testdata/mutants.txt
var table string

// mutant is a fault to be planted in one file.
type mutant struct {
	name, stands string // what it stands for
	file         string
	is, becomes  string
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
			t.Fatalf("block %d: %q is no mutant", i, lines[0])
		}
		m := mutant{name: title[1], stands: title[2], file: lines[1]}
		for _, line := range lines[2:] {
			switch sign, text := line[:1], strings.TrimPrefix(line[1:], " "); sign {
			case "-":
				m.is += text + "\n"
			case "+":
				m.becomes += text + "\n"
			default:
				t.Fatalf("%s: what is %q?", m.name, line)
			}
		}
		list = append(list, m)
	}
	return list
}

// TestMutants kills them.
func TestMutants(t *testing.T) {
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
	if k := hunt(t, mutant{name: "no fault at all"}, "", sane); k != nil || t.Failed() {
		t.Fatalf("without a fault: %v", k)
	}
	chosen := regexp.MustCompile(*only)
	var rows [][]string
	killed := 0
	for i, m := range list {
		if *only == "" && !*all && i > 0 || !chosen.MatchString(m.name) {
			continue
		}
		k := hunt(t, m, planted[i], histories)
		if k == nil {
			t.Errorf("%s survives %d histories", m.name, histories)
			k = &kill{checker: "**survives**"}
		} else {
			killed++
		}
		rows = append(rows, []string{m.name, m.stands, k.seed, k.faults, k.checker})
	}
	t.Logf("%d of %d mutants are killed", killed, len(rows))
	if *write == "" {
		return
	}
	text := fmt.Sprintf("%d of %d are killed, each within %d histories.\n\n%s", killed, len(rows), histories,
		section.Table([]string{"Planted fault", "Stands for", "Killed by history", "With", "Found"}, rows))
	if err := section.Write(*write, "mutants", text); err != nil {
		t.Error(err)
	}
}

// plant writes the file with the fault in it, and returns its path.
func plant(t *testing.T, m mutant) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	// A mutant is written without the indentation of the place it stands in.
	lines := strings.Split(string(source), "\n")
	want := strings.Split(strings.TrimSuffix(m.is, "\n"), "\n")
	found, indent := -1, ""
	for i := range lines {
		if in, ok := stands(lines[i:], want); ok {
			if found >= 0 {
				t.Errorf("%s: %s has it twice", m.name, m.file)
			}
			found, indent = i, in
		}
	}
	if found < 0 {
		t.Errorf("%s: %s has changed; plant it anew", m.name, m.file)
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

// stands reports whether the lines begin with those that are wanted, all of them
// further in by the same.
func stands(lines, want []string) (indent string, ok bool) {
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

// kill is the history that killed a mutant: its seed, the faults in it, the
// checker that found something, and what.
type kill struct{ seed, faults, checker, what string }

func (k *kill) String() string {
	return fmt.Sprintf("history %s (%s), %s: %s", k.seed, k.faults, k.checker, k.what)
}

var foundBy = regexp.MustCompile(`seed (\d+) \(([^)]*)\): ([^:\n]+): ([^\n]{0,100})`)

// hunt runs up to n histories with the mutant until one kills it, and says which.
func hunt(t *testing.T, m mutant, planted string, n int) *kill {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join("..", "..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	if planted != "" {
		replace[original] = planted
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../sim")
	if said, err := build.CombinedOutput(); err != nil {
		t.Errorf("%s does not compile:\n%s", m.name, said)
		return nil
	}
	run := exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=5m", "-sim.out", dir,
		"-sim.first", fmt.Sprint(*first), "-sim.histories", fmt.Sprint(n), "-sim.enough=1")
	run.Dir = filepath.Join("..", "sim")
	began := time.Now()
	said, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	by := foundBy.FindStringSubmatch(string(said))
	if by == nil {
		if err != nil {
			t.Errorf("%s ends the simulation otherwise:\n%s", m.name, said[:min(len(said), 2000)])
		}
		return nil
	}
	k := &kill{by[1], by[2], by[3], by[4]}
	t.Logf("%s: %v, in %v", m.name, k, time.Since(began).Round(100*time.Millisecond))
	return k
}
