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

// Main is the TestMain of a package that tests a store on real servers. It does not return.
//
// Child processes begin here too. Main runs that many tests at once, because they mostly wait for
// servers and clocks; the command line may set another number. It fails the run if goroutines of this
// module outlive the tests, or of modules whose path contains one of the given texts.
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

// goroutines returns the stacks of goroutines that run code of these modules, or that were started by
// such code.
func goroutines(modules []string) (left []string) {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for i, stack := range strings.Split(string(stacks), "\n\n") {
		for _, module := range modules {
			// The first stack is that of this goroutine.
			if i > 0 && strings.Contains(stack, module) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}
