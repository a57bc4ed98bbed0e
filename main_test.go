package dlock_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run if goroutines of the library outlive the tests. Those
// of a synctest bubble cannot; this is for everything that runs outside one.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftover(5 * time.Second); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left after all tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// leftover returns the stacks of goroutines that run or were started by code of
// this module or its timing wheel, when they have had d to end. The end of a
// goroutine that Close has waited for cannot be waited for itself, so this asks
// again instead.
func leftover(d time.Duration) []string {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(d); ; <-again.C {
		left := libraryGoroutines()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

func libraryGoroutines() []string {
	stacks := make([]byte, 1<<20)
	for n := runtime.Stack(stacks, true); n == len(stacks); n = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	text := strings.TrimRight(string(stacks), "\x00")
	var left []string
	for i, stack := range strings.Split(strings.TrimSpace(text), "\n\n") {
		// The first is the one that asks.
		if i > 0 && (strings.Contains(stack, "dlock-go/dlock") || strings.Contains(stack, "timingwheel")) {
			left = append(left, stack)
		}
	}
	return left
}
