package conformance

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/store"
)

// The table is kept as text because it is read far more than edited: which
// cases does a fault show in, and which faults is a case there for.
//
//go:embed testdata/mutants.txt
var mutantTable string

//go:embed model*_test.go
var modelFiles embed.FS

// mutants reads the table: the cases that each mutant fails.
func mutants(t *testing.T) map[string][]string {
	table := make(map[string][]string)
	var bug string
	for line := range strings.Lines(mutantTable) {
		line = strings.TrimSuffix(line, "\n")
		topic, names, indented := strings.Cut(strings.TrimPrefix(line, "\t"), ": ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] != '\t':
			bug = line
			if table[bug] != nil {
				t.Errorf("testdata/mutants.txt: %q is there twice", bug)
			}
			table[bug] = []string{}
		case indented:
			for name := range strings.SplitSeq(names, "; ") {
				table[bug] = append(table[bug], topic+"/"+name)
			}
		}
	}
	return table
}

func modelSuite(bug string) Suite {
	return Suite{
		New:   func(testing.TB) store.Store { return newModel(bug) },
		Plant: func(_ testing.TB, s store.Store, name string) { s.(*modelHandle).foreign[name] = true },
		Stall: func(_ testing.TB, s store.Store) (resume func()) { return s.(*modelHandle).stall() },

		Footprint: func(s store.Store) int { return s.(*modelHandle).footprint() },
		Bubble:    true,
	}
}

// failures runs every case on the model with a bug and reports those that fail.
func failures(t *testing.T, bug string) (reports map[string]string) {
	return failuresOf(t, bug, allCases()...)
}

// failuresOf is failures for some cases.
func failuresOf(t *testing.T, bug string, cases ...testCase) (reports map[string]string) {
	p := modelSuite(bug).plan(t)
	p.quick = true
	reports = make(map[string]string)
	for _, c := range cases {
		if why := p.skips(c); why != "" {
			t.Errorf("%s: skipped: %s", c.name, why)
		} else if got := p.run(t, c); got.report != "" {
			reports[c.name] = got.report
		}
	}
	return reports
}

// TestModel: without a bug the model passes, in full.
func TestModel(t *testing.T) { RunSuite(t, modelSuite("")) }

// TestMutants: each mutant fails the cases that are meant for it and no
// others, and each case is meant for some mutant. With -v it prints the table.
func TestMutants(t *testing.T) {
	table := mutants(t)
	var mu sync.Mutex
	killed := make(map[string][]string)
	t.Run("each", func(t *testing.T) {
		for _, bug := range slices.Sorted(maps.Keys(table)) {
			t.Run(bug, func(t *testing.T) {
				t.Parallel()
				reports := failures(t, bug)
				// Two calls at once show a bug in one order only. The scheduler may choose the other in each round.
				for _, name := range table[bug] {
					for again := 0; reports[name] == "" && again < 3; again++ {
						maps.Copy(reports, failuresOf(t, bug, named(t, name)))
					}
				}
				for name, report := range reports {
					if !slices.Contains(table[bug], name) {
						t.Errorf("a case that is not meant for it fails: %s", report)
					}
				}
				for _, name := range table[bug] {
					if reports[name] == "" {
						t.Errorf("%s does not fail", name)
					}
				}
				if len(reports) == 0 {
					t.Error("no case fails")
				}
				mu.Lock()
				killed[bug] = slices.Sorted(maps.Keys(reports))
				mu.Unlock()
			})
		}
	})

	var shown strings.Builder
	kills := make(map[string]int)
	for _, bug := range slices.Sorted(maps.Keys(killed)) {
		fmt.Fprintf(&shown, "%-50s %s\n", bug, strings.Join(killed[bug], ", "))
		for _, name := range killed[bug] {
			kills[name]++
		}
	}
	t.Logf("%d mutants, %d cases\n%s", len(killed), len(allCases()), &shown)
	if len(killed) < len(table) {
		return // -run selected some only
	}
	for _, c := range allCases() {
		if kills[c.name] == 0 {
			t.Errorf("%s fails for no mutant", c.name)
		}
	}
}

// TestMutantsComplete: the table and the faults planted in the model are the same.
func TestMutantsComplete(t *testing.T) {
	table := mutants(t)
	var modelSource string
	files, err := modelFiles.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := modelFiles.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		modelSource += string(source)
	}
	planted := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?:is\(|case )"([^"]+)"`).FindAllStringSubmatch(modelSource, -1) {
		planted[m[1]] = true
	}
	for bug := range planted {
		if prefix, ok := strings.CutSuffix(bug, " by "); ok { // followed by the operation's name
			delete(planted, bug)
			for _, op := range regexp.MustCompile(`\.on\(ctx, "(\w+)"`).FindAllStringSubmatch(modelSource, -1) {
				planted[prefix+" by "+op[1]] = true
			}
		}
	}
	for bug := range planted {
		if table[bug] == nil {
			t.Errorf("testdata/mutants.txt lacks %q", bug)
		}
	}
	for bug := range table {
		if !planted[bug] {
			t.Errorf("no fault %q is planted in the model", bug)
		}
	}
}

// TestCases: names are unique, and each says what it checks.
func TestCases(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range allCases() {
		if seen[c.name] || strings.ContainsAny(c.name, ":;") {
			t.Errorf("%q is there twice, or would not fit the table", c.name)
		}
		seen[c.name] = true
		if c.says == "" {
			t.Errorf("%s cites no sentence of the contract", c.name)
		}
	}
}
