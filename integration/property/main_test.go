// Package property checks dlock with random sequences of operations against
// short models, and shrinks the sequences that break them. All of it runs in
// synctest bubbles on the memory store, so minutes of leases take microseconds.
//
// Three machines, each a test:
//
//   - TestFault82Store: one store, all its operations, and repetitions of them, against
//     a model written from the contract alone. It compares full answers.
//   - TestClient: up to three clients, five owners and three names, step by step,
//     with outages, forced release, closing and reopening.
//   - TestConcurrent: goroutines that really run at once, whose claims must never
//     overlap and which the store must serve in the order in which they came.
//
// More of it: go test -run=TestFault82Store -rapid.checks=10000 -rapid.steps=50. The
// number counts in units of the test's own weight; see check. A failure prints
// the shrunk sequence and the flag that repeats it.
package property

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes the checks few enough for every day and draws the same
// sequences each time, unless the command line (or rapid's own variable in the
// environment) says how many. A number of checks draws others.
func TestMain(m *testing.M) {
	flag.Parse()
	told := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) {
		told = told || f.Name == "rapid.checks" || f.Name == "rapid.seed" || f.Name == "rapid.failfile"
	})
	if !told {
		setChecks(200)
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func setChecks(n int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// check runs weight times as many checks as -rapid.checks says, so that one flag
// serves tests of which one sequence costs ten times what it costs in another.
// The tests that call it must not be parallel, for the flag is global.
func check(t *testing.T, weight int, property func(*rapid.T)) {
	t.Helper()
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if err != nil {
		t.Fatal(err)
	}
	setChecks(n * weight)
	defer setChecks(n)
	rapid.Check(t, property)
}
