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

// The process was held up for so long that the library would put a new timer
// into an overflow wheel: the wheel is given nothing more.
func TestStaleWheelIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.close()
		r.wheels.setup = faults["never fires"]
		e := r.k.submit(int64(time.Second), func() {})
		synctest.Wait()
		r.at.Store(stale + 1)
		require.Same(t, e, r.k.submit(r.at.Load()+int64(time.Second), func() {}))
		synctest.Wait()
		_, asked := r.wheels.counts()
		require.Equal(t, 1, asked)
		require.Nil(t, r.k.submit(r.at.Load()+int64(time.Second), func() {}), "no pause")
		r.at.Add(firstPause)
		next := r.k.submit(r.at.Load()+int64(time.Second), func() {})
		require.NotNil(t, next)
		synctest.Wait()
		r.k.discard(e) // the wheel in use is another one
		require.Same(t, next, r.k.submit(r.at.Load()+int64(time.Second), func() {}))
		synctest.Wait()
		r.k.close()
		require.Nil(t, r.k.submit(0, nil), "closed")
	})
}

// Entries that follow each other in time keep the wheel in use.
func TestEntriesKeepTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.close()
		fired := 0
		e := r.k.submit(int64(time.Second), func() { fired++ })
		for i := range 10 {
			require.NotNil(t, e)
			pass(time.Second)
			require.Equal(t, i+1, fired)
			r.at.Add(stale)
			require.Same(t, e, r.k.submit(r.at.Load()+int64(time.Second), func() { fired++ }))
		}
		pass(time.Second)
		require.Equal(t, 11, fired)
		pass(idleTime)
		require.NotSame(t, e, r.k.submit(r.at.Load(), func() {}), "an idle wheel is in use")
	})
}

// A wheel whose AfterFunc blocks takes a bounded number of entries.
func TestBlockedWheelTakesFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.close()
		defer r.wheels.unblock()
		r.wheels.setup = faults["blocks"]
		taken := 0
		for range 10 * maxQueued {
			if r.k.submit(int64(time.Second), func() {}) != nil {
				taken++
			}
			synctest.Wait()
		}
		require.Equal(t, maxQueued+1, taken)
	})
}
