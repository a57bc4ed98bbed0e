package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// test is one test function.
type test struct {
	binary, dir, name string
	took              time.Duration
}

func (t *test) alone() []*test { return []*test{t} }

// runner runs the tests that reach a mutant.
type runner struct {
	tmp     string
	out     io.Writer
	tests   int
	reached map[int][]*test
}

// build compiles the tests of a package, runs each alone and notes which mutants it reaches.
func (r *runner) build(overlay, pattern, binary string) {
	dir := strings.TrimSpace(command("go", "list", "-f={{.Dir}}", pattern))
	command("go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o="+binary, pattern)
	list := exec.Command(binary, "-test.list=.")
	list.Dir = dir
	names, err := list.Output()
	check(err)
	left := regexp.MustCompile(*skip)
	for _, name := range strings.Fields(string(names)) {
		if strings.HasPrefix(name, "Benchmark") || *skip != "" && left.MatchString(name) {
			continue
		}
		t := &test{binary: binary, dir: dir, name: name}
		file := filepath.Join(r.tmp, "reached")
		os.Remove(file)
		began := time.Now()
		variable := "MUTANT_REACHED=" + file
		end := r.run(t.alone(), variable, 5*time.Minute)
		if end != passed { // the machine may have been busy
			end = r.run(t.alone(), variable, 5*time.Minute)
		}
		if end != passed {
			log.Printf("left out, as it fails without a mutant: %s %s", pattern, name)
			continue
		}
		t.took = time.Since(began)
		r.tests++
		ids, _ := os.ReadFile(file) // it may reach none
		for _, field := range strings.Fields(string(ids)) {
			var id int
			fmt.Sscan(field, &id)
			if !slices.Contains(r.reached[id], t) {
				r.reached[id] = append(r.reached[id], t)
			}
		}
	}
}

// The ends of a run.
const (
	passed = iota
	failed
	hung
)

// run runs tests of one binary with that variable.
func (r *runner) run(tests []*test, variable string, timeout time.Duration) int {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	args := []string{"-test.failfast", "-test.run=^(" + strings.Join(names, "|") + ")$"}
	if *short {
		args = append(args, "-test.short")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c := exec.CommandContext(ctx, tests[0].binary, args...)
	c.Dir, c.Env, c.WaitDelay = tests[0].dir, append(os.Environ(), variable), time.Second
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		log.Fatal(err)
	}
	switch {
	case err == nil:
		return passed
	case ctx.Err() != nil:
		return hung
	}
	return failed
}

// killed says whether a test fails with the mutant switched on: the fastest tests run first.
func (r *runner) killed(id int) bool {
	tests := slices.SortedFunc(slices.Values(r.reached[id]), func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	for size := 4; len(tests) > 0; size *= 4 {
		batch := tests[:min(size, len(tests))]
		tests = tests[len(batch):]
		for len(batch) > 0 {
			var own, others []*test
			var took time.Duration
			for _, t := range batch {
				if t.binary == batch[0].binary {
					own, took = append(own, t), took+t.took
				} else {
					others = append(others, t)
				}
			}
			if r.notice(own, id, patience+3*took) {
				return true
			}
			batch = others
		}
	}
	return false
}

// patience is how long tests may take besides three times what they took without a mutant.
const patience = 10 * time.Second

// notice says whether tests fail, or do not end, with the mutant switched on. Both may be because the
// machine is busy. So it has to happen twice, and in between they have to pass without it, in the same time.
func (r *runner) notice(tests []*test, id int, timeout time.Duration) bool {
	variable := fmt.Sprintf("MUTANT=%d", id)
	for range 6 {
		if r.run(tests, variable, timeout) == passed {
			return false
		}
		if r.run(tests, "MUTANT=0", timeout) == passed {
			return r.run(tests, variable, timeout) != passed
		}
		timeout *= 2
	}
	return false
}

// score says how many mutants of a package were noticed.
type score struct{ killed, lived, missed int }

// percent is that of the mutants that tests reach.
func (s score) percent() float64 { return 100 * float64(s.killed) / float64(max(s.killed+s.lived, 1)) }

func (r *runner) all(mutants []mutant, only string) score {
	var s score
	for _, m := range mutants {
		if m.id%*every != 0 || only != "" && !strings.Contains(","+only+",", fmt.Sprintf(",%d,", m.id)) {
			continue
		}
		switch {
		case len(r.reached[m.id]) == 0:
			s.missed++
			fmt.Fprintf(r.out, "not covered %d %s %s\n", m.id, m.place, m.what)
		case r.killed(m.id):
			s.killed++
		default:
			s.lived++
			fmt.Fprintf(r.out, "lived %d %s %s\n", m.id, m.place, m.what)
		}
	}
	fmt.Fprintf(r.out, "%d tests, %d mutants: %d killed, %d lived, %d not covered; score %.1f %% of the covered\n",
		r.tests, s.killed+s.lived+s.missed, s.killed, s.lived, s.missed, s.percent())
	return s
}
