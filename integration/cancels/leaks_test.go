package cancels

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// usage is what this process has of what can leak. Timers are objects that the
// runtime keeps while they run, so they are among those.
type usage struct{ goroutines, descriptors, objects int }

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d objects", u.goroutines, u.descriptors, u.objects)
}

func used() usage {
	runtime.GC()
	runtime.GC() // what the first has finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	descriptors, _ := os.ReadDir("/proc/self/fd") // none elsewhere than on Linux
	return usage{goroutines(), len(descriptors), int(m.HeapObjects)}
}

// streamGoroutines are those of a stream of watches in the etcd client. If its last watch is closed while the stream
// is opened again, the client keeps the stream for the next watch.
const streamGoroutines = 4

// goroutines counts all but those of a watchdog's wheel, and of one stream of watches. The wheel of the client that
// holds locks begins some time after the first lock, and may rest in between.
func goroutines() (n int) {
	stacks := make([]byte, 1<<20)
	for size := runtime.Stack(stacks, true); size == len(stacks); size = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	for _, stack := range strings.Split(strings.TrimRight(string(stacks), "\x00"), "\n\n") {
		if !strings.Contains(stack, "timingwheel") && !strings.Contains(stack, "wheelSupply") {
			n++
		}
	}
	if bytes.Contains(stacks, []byte("client/v3.(*watchGRPCStream).run(")) {
		n -= streamGoroutines
	}
	return n
}

// few is how many objects more there may be after so many calls: buffers and caches
// come and go, and a leak would be one of each call at least.
func few(calls int) int { return 2000 + calls/4 }

// leakAfter is how long it may take until what is no longer needed is gone.
const leakAfter = 10 * time.Second

// back waits until no more is used than was.
func back(t *testing.T, when string, was usage, calls int) usage {
	t.Helper()
	for deadline := time.Now().Add(leakAfter); ; time.Sleep(50 * time.Millisecond) {
		now := used()
		if now.goroutines <= was.goroutines && now.descriptors <= was.descriptors && now.objects <= was.objects+few(calls) {
			return now
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Errorf("%s there are %v, and there were %v\n%s", when, now, was, stacks[:runtime.Stack(stacks, true)])
			return now
		}
	}
}
