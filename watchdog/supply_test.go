package watchdog

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// supplyFixture is a wheelSupply with a clock of its own.
type supplyFixture struct {
	k      *wheelSupply
	wheels fakeWheels
	at     atomic.Int64
}

func newSupplyFixture() *supplyFixture {
	r := &supplyFixture{}
	r.k = &wheelSupply{
		now:      func() int64 { return r.at.Load() },
		newWheel: r.wheels.make,
	}
	return r
}

// submit gives the supply an entry that is due in a second.
func (r *supplyFixture) submit(f func()) bool { return r.k.submit(r.at.Load()+int64(time.Second), f) }

// made returns how many wheels were made.
func (r *supplyFixture) made() int {
	synctest.Wait()
	n, _ := r.wheels.counts()
	return n
}

// A wheel that is at fault is given nothing more, and the next one is made after a pause.
func TestRestAfterAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		require.True(t, r.submit(func() {}))
		require.Equal(t, 1, r.made())
		r.k.stop(pause)
		require.False(t, r.submit(func() {}), "no pause")
		synctest.Wait()
		r.at.Store(pause)
		r.k.stop(2 * pause) // there is no wheel that could be at fault
		require.True(t, r.submit(func() {}))
		require.Equal(t, 2, r.made())
		r.k.stop(never)
	})
}

// Entries that follow each other in time keep the wheel in use.
func TestEntriesKeepTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.stop(never)
		fired := 0
		for i := range 10 {
			require.True(t, r.submit(func() { fired++ }))
			pass(idleTime - 1)
			require.Equal(t, i+1, fired)
			require.Equal(t, 1, r.made())
		}
		pass(idleTime)
		require.True(t, r.submit(func() {}))
		require.Equal(t, 2, r.made(), "an idle wheel is in use")
	})
}

// A wheel that has just been given an entry is not stopped as idle.
func TestWheelWithAnEntryIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.stop(never)
		defer r.wheels.unblock()
		r.wheels.setup = faults["blocks"]
		for range 2 { // the second entry waits for the first
			require.True(t, r.submit(func() {}))
			synctest.Wait()
		}
		r.k.stop(0)
		require.NotNil(t, r.k.entries)
	})
}

// A wheel whose AfterFunc blocks takes a bounded number of entries.
func TestBlockedWheelTakesFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.stop(never)
		defer r.wheels.unblock()
		r.wheels.setup = faults["blocks"]
		taken := 0
		for range 10 * maxQueued {
			if r.submit(func() {}) {
				taken++
			}
			synctest.Wait()
		}
		require.Equal(t, maxQueued+1, taken)
		r.k.stop(1)
		synctest.Wait()
		require.False(t, r.submit(func() {}), "a wheel that cannot be stopped is not replaced")
	})
}
