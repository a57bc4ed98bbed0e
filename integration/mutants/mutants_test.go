// Package mutants plants faults in the client and in the memory store, one at a
// time, and lets the simulation find them: each must be killed within a thousand
// histories. What survives would mean that the simulation is blind to it.
//
// The faults are not in the code: each is an overlay of one file that the test
// compiles the simulation with.
//
//	go test ./mutants -v                 # all still apply, and the first few die
//	go test ./mutants -v -mutants.all    # all of them; minutes
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

	"github.com/dlock-go/dlock/integration/section"
)

var (
	all   = flag.Bool("mutants.all", false, "kill all mutants, not only the first few")
	write = flag.String("mutants.write", "", "write the table into this file (the section between its marks)")
)

const (
	few       = 2
	histories = 1000 // within which each mutant has to die
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
	if !*all {
		list = list[:few]
	}
	if history := hunt(t, mutant{name: "no fault at all"}, ""); history != "" {
		t.Fatalf("without a fault: %s", history)
	}
	var rows [][]string
	killed := 0
	for i, m := range list {
		history := hunt(t, m, planted[i])
		if history == "" {
			t.Errorf("%s survives %d histories", m.name, histories)
		}
		if history != "" {
			killed++
		}
		rows = append(rows, []string{m.name, m.stands, history})
	}
	t.Logf("%d of %d mutants are killed", killed, len(list))
	if *write == "" {
		return
	}
	text := fmt.Sprintf("%d of %d are killed, each within %d histories.\n\n%s", killed, len(list), histories,
		section.Table([]string{"Planted fault", "Stands for", "Killed by"}, rows))
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

var foundBy = regexp.MustCompile(`seed (\d+) \(([^)]*)\): ([^\n]{0,60})`)

// hunt runs histories with the mutant until one kills it, and says which.
func hunt(t *testing.T, m mutant, planted string) (history string) {
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
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../sim")
	if said, err := build.CombinedOutput(); err != nil {
		t.Errorf("%s does not compile:\n%s", m.name, said)
		return ""
	}
	run := exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=5m", "-sim.out", dir,
		"-sim.histories", fmt.Sprint(histories))
	run.Dir = filepath.Join("..", "sim")
	said, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	by := foundBy.FindStringSubmatch(string(said))
	switch {
	case by != nil:
		history = fmt.Sprintf("history %s (%s): %s", by[1], by[2], by[3])
		t.Logf("%s: %s", m.name, history)
	case err != nil:
		t.Errorf("%s ends the simulation otherwise:\n%s", m.name, said[:min(len(said), 2000)])
	}
	return history
}
