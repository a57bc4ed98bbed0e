package coretest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main is the TestMain of a package. It fails the run if goroutines of this module outlive the
// tests. A synctest bubble checks its own goroutines; Main is for all others. It does not return.
func Main(m *testing.M) {
	code := m.Run()
	if left := leftover(5 * time.Second); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left after all tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// leftover returns the stacks of goroutines of this module that run longer than d. It polls,
// because a goroutine that Close has waited for may still need a moment to return.
func leftover(d time.Duration) []string {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(d); ; <-again.C {
		left := moduleGoroutines()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// moduleGoroutines returns the stacks of goroutines that run code of this module or of its
// timing wheel, or that were started by such code.
func moduleGoroutines() []string {
	stacks := make([]byte, 1<<20)
	for n := runtime.Stack(stacks, true); n == len(stacks); n = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	text := strings.TrimRight(string(stacks), "\x00")
	var left []string
	for i, stack := range strings.Split(strings.TrimSpace(text), "\n\n") {
		// The first stack is that of this goroutine.
		if i > 0 && (strings.Contains(stack, "dlock-go/dlock") || strings.Contains(stack, "timingwheel")) {
			left = append(left, stack)
		}
	}
	return left
}

// Heap returns the bytes in use. It collects garbage several times, so that memory which other
// goroutines are about to give up does not count.
func Heap() int64 {
	var m runtime.MemStats
	least := int64(1) << 62
	for range 20 {
		runtime.Gosched()
		runtime.GC()
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}
