package watchdog

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A loop of Keep and Disarm allocates nothing, starts no goroutine, makes
// no wheel and sets the timer of a shard once in six seconds at most.
func TestShortLeasesCostNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		l := Lease{}
		r.keep(&l, 30*time.Second)
		require.True(t, l.Disarm())
		sh := l.home.Load()
		timerAt := func() int64 {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			return sh.timerAt
		}
		armedAt := timerAt()
		require.Greater(t, armedAt, r.w.now()+int64(6*time.Second))
		allocations := 0.0
		for range 1000 {
			time.Sleep(6 * time.Millisecond)
			for range 2 {
				now := time.Now()
				allocations += testing.AllocsPerRun(1, func() {
					r.w.Keep(&l, Terms{Deadline: now.Add(30 * time.Second), Validity: 30 * time.Second, Now: now})
					l.Disarm()
				})
			}
			require.Equal(t, armedAt, timerAt(), "the timer was set again")
		}
		require.Less(t, allocations, 20.0, "allocations in 2000 runs; the runtime makes some of its own")
		pass(3 * time.Second)
		require.Zero(t, timerAt(), "the timer is set without a lease")
		for range 100 { // holds of 30 ms
			r.keep(&l, 30*time.Second)
			pass(30 * time.Millisecond)
			require.Empty(t, ownGoroutines())
			require.True(t, l.Disarm())
		}
		made, _ := wheels.counts()
		require.Zero(t, made, "a wheel was made")
		sh.mu.Lock()
		require.Empty(t, sh.agenda)
		sh.mu.Unlock()

		r.keep(&l, 30*time.Second)
		pass(9 * time.Second)
		sh.mu.Lock()
		require.Len(t, sh.agenda, 1)
		sh.mu.Unlock()
		made, _ = wheels.counts()
		require.Equal(t, 1, made)
	})
}

// Keep counts from Terms.Now if it is given.
func TestNowOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		start := time.Now()
		time.Sleep(300 * time.Millisecond)
		r.w.Keep(&l, Terms{Deadline: start.Add(3 * time.Second), Validity: 3 * time.Second, Now: start})
		pass(3 * time.Second)
		require.InDelta(t, 1.0, r.renewals(&l)[0].Sub(start).Seconds(), 0.07)
		require.True(t, l.Disarm())
	})
}

// A hundred thousand leases are lost within a tenth of a second, by their deadlines
// or by the store. A few goroutines report all losses although Expired is slow, and
// the memory is free afterwards.
func TestFault105ManyLossesAtOnce(t *testing.T) {
	for cause, reply := range map[Cause]func(context.Context, []*Lease) []Outcome{
		DeadlinePassed: silent,
		ToldLost:       always(Lost),
	} {
		t.Run(cause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { loseAll(t, cause, reply) })
		})
	}
}

func loseAll(t *testing.T, cause Cause, reply func(context.Context, []*Lease) []Outcome) {
	const leases, validity = 100_000, 30 * time.Second
	var lost, atOnce, most atomic.Int64
	w, err := New(Config{
		Renew: reply,
		Expired: func(l *Lease) {
			n := atOnce.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			if lost.Add(1)%500 == 0 {
				time.Sleep(time.Millisecond)
			}
			atOnce.Add(-1)
			if c := l.Cause(); c != cause {
				t.Errorf("lost by %v, want %v", c, cause)
			}
		},
	})
	require.NoError(t, err)
	defer w.Close()
	before := heapInUse()
	all := make([]Lease, leases)
	start := time.Now()
	for i := range all {
		deadline := start.Add(validity + time.Duration(i/100)*100*time.Microsecond)
		w.Keep(&all[i], Terms{Deadline: deadline, Validity: validity})
	}
	if cause == DeadlinePassed {
		pass(validity - 1)
	} else {
		pass(validity / 4) // no lease is renewed so early
	}
	require.Zero(t, lost.Load())
	peak := 0
	for lost.Load() < leases {
		time.Sleep(10 * time.Millisecond)
		peak = max(peak, len(ownGoroutines()))
	}
	require.LessOrEqual(t, most.Load(), int64(shardCount), "calls of Expired at once")
	require.LessOrEqual(t, peak, (2+maxCalls)*shardCount+3, "goroutines")
	for i := range all {
		if c := all[i].Cause(); c != cause {
			t.Fatalf("lease %d: lost by %v", i, c)
		}
	}
	pass(time.Minute)
	require.EqualValues(t, leases, lost.Load())
	require.Empty(t, ownGoroutines())
	for i := range w.shards {
		require.LessOrEqual(t, cap(w.shards[i].agenda), keptCapacity)
	}
	runtime.KeepAlive(all)
	all = nil
	require.Less(t, heapInUse(), before+1<<20, fmt.Sprint("bytes still in use, ", before, " before"))
}

// heapInUse returns how many bytes live objects have.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
