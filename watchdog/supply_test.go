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

// An entry within the tick fires without moving the library's own time, so it does
// not keep a wheel from becoming stale.
func TestEntryWithinTheTickDoesNotRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.close()
		fired := 0
		e := r.k.submit(0, func() { fired++ })
		synctest.Wait()
		r.at.Store(stale - 1)
		require.Same(t, e, r.k.submit(stale-1, func() { fired++ }))
		pass(1)
		require.Equal(t, 2, fired)
		r.at.Store(stale + 1)
		require.Same(t, e, r.k.submit(stale+1, func() { fired++ }))
		pass(1)
		require.Equal(t, 2, fired)
		r.at.Add(firstPause)
		require.NotSame(t, e, r.k.submit(r.at.Load(), func() { fired++ }))
		pass(1)
		require.Equal(t, 3, fired)
	})
}

// An entry that fires in time keeps the wheel fresh.
func TestEntryRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSupplyFixture()
		defer r.k.close()
		fired := 0
		e := r.k.submit(int64(time.Second), func() { fired++ })
		synctest.Wait()
		r.at.Store(int64(time.Second))
		pass(time.Second)
		require.Equal(t, 1, fired)
		r.at.Add(stale)
		require.Same(t, e, r.k.submit(r.at.Load()+int64(time.Second), func() { fired++ }))
		pass(time.Second)
		require.Equal(t, 2, fired)
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
