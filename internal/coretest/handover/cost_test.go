package handover

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// runlockCost returns the time of one RUnlock through a value that so many readers hold. It is the
// least of several rounds, because other work on the machine only adds to it.
func runlockCost(t *testing.T, readers, rounds int) time.Duration {
	t.Helper()
	rw := coretest.Open(t, memory.New(), &dlock.Options{LocalHandoffs: 1000}).RWMutex("m")
	least := time.Duration(1 << 62)
	for range rounds {
		for range readers {
			rw.RLock()
		}
		began := time.Now()
		for range readers {
			rw.RUnlock()
		}
		least = min(least, time.Since(began)/time.Duration(readers))
	}
	return least
}

// RUnlock does not get slower with the number of readers that hold through one *RWMutex: a search
// among them would make it a hundred times slower here.
func TestRUnlockCostsTheSameForManyReaders(t *testing.T) {
	few, many := runlockCost(t, 50, 200), runlockCost(t, 5_000, 3)
	assert.LessOrEqual(t, many, 40*few, "a call of 5,000 readers, and of 50")
}

// A turn of a lock that passes from goroutine to goroutine allocates four objects.
func TestLocalHandoverAllocations(t *testing.T) {
	const goroutines, turns = 4, 20_000
	m := coretest.Open(t, memory.New(), &dlock.Options{LocalHandoffs: 1000}).Mutex("m")
	round := func() {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range turns {
					h, err := m.LockContext(context.Background())
					if err == nil {
						err = h.Unlock()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	round()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	round()
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / (goroutines * turns)
	assert.LessOrEqual(t, each, 4.2, "allocations a turn")
}
