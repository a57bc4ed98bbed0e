package locktest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main is the TestMain of a package that tests a store on real servers. It is
// also where its children begin, runs so many tests at once unless the command
// line says how many, for they mostly wait for servers and clocks, and fails the
// run if goroutines of this module, or of the others whose path contains one of
// modules, outlive the tests. It does not return.
func Main(m *testing.M, open Open, parallel string, modules ...string) {
	runChild(open)
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] {
		flag.Set("test.parallel", parallel)
	}
	code := m.Run()
	modules = append(modules, "dlock-go/dlock")
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if left = goroutines(modules); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left after all tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// goroutines returns the stacks of goroutines that run code of these modules or
// were started by it.
func goroutines(modules []string) (left []string) {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for i, stack := range strings.Split(string(stacks), "\n\n") {
		for _, module := range modules {
			// The first is the one that asks.
			if i > 0 && strings.Contains(stack, module) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}
