package watchdog

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestManyLeasesAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases, validity = 100_000, 30 * time.Second
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var calls, renewed int
		var mu sync.Mutex
		r.w.cfg.Renew = func(_ context.Context, batch []*Lease) []Outcome {
			mu.Lock()
			defer mu.Unlock()
			calls++
			renewed += len(batch)
			return always(Renewed)(nil, batch)
		}
		all := make([]Lease, leases)
		for i := range all {
			r.keep(&all[i], validity)
			if i%(leases/100) == 0 {
				time.Sleep(validity / 300) // a third of the validity in all
			}
		}
		pass(validity)
		require.LessOrEqual(t, len(ownGoroutines()), 3, "goroutines at rest")
		mu.Lock()
		calls, renewed = 0, 0
		mu.Unlock()
		pass(3 * validity)
		require.Empty(t, r.lost())
		mu.Lock()
		require.InDelta(t, 9.3*leases, renewed, 0.6*leases)
		ideal := renewed / DefaultMaxBatch
		require.Less(t, calls, ideal*3/2, "ideal is %d", ideal)
		mu.Unlock()
		for i := range all {
			if !all[i].Disarm() {
				t.Fatal("lost")
			}
		}
		r.w.Close()
		synctest.Wait()
		require.Empty(t, ownGoroutines())
	})
}

// Leases of one shard that were armed together are renewed in full batches.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 10}, nil)
		defer r.w.Close()
		all := make([]Lease, 25*shardCount)
		for i := range all {
			r.keep(&all[i], 30*time.Second)
		}
		pass(11 * time.Second)
		require.Equal(t, 3*shardCount, r.callCount())
		for _, c := range r.calls {
			require.LessOrEqual(t, len(c.batch), 10)
		}
	})
}

// Leases that were armed at different times share batches: ten thousand leases of
// 10 s, armed within three seconds, are renewed a hundred at a time.
func TestBatchesOfLeasesThatBeganApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		all := make([]Lease, 10000)
		for i := range all {
			r.keep(&all[i], 10*time.Second)
			if i%100 == 0 {
				time.Sleep(30 * time.Millisecond)
			}
		}
		pass(10 * time.Second)
		before := r.callCount()
		pass(20 * time.Second)
		renewals := 0
		for _, c := range r.calls[before:] {
			renewals += len(c.batch)
		}
		require.GreaterOrEqual(t, renewals, 5*len(all))
		require.GreaterOrEqual(t, renewals/(r.callCount()-before), 100)
	})
}

// At most maxCalls calls are under way for one class of one shard, and the leases
// that become due meanwhile share the next call.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 100}, nil)
		defer r.w.Close()
		free := r.holdReplies(Renewed)
		defer free()
		all := make([]Lease, 50*shardCount)
		start := time.Now()
		for i := range all {
			// Due at 50 moments between 3 s and 5 s.
			remaining := 9*time.Second + time.Duration(i)*30*time.Millisecond
			r.w.Keep(&all[i], Terms{Deadline: start.Add(remaining), Validity: 30 * time.Second})
		}
		pass(6 * time.Second)
		require.Equal(t, maxCalls*shardCount, r.callCount())
		free()
		synctest.Wait()
		require.Equal(t, (maxCalls+1)*shardCount, r.callCount())
		for i := range all {
			require.Len(t, r.renewals(&all[i]), 1)
		}
		require.Empty(t, r.lost())
	})
}

// Calls that hang and ignore their context delay neither another shard nor
// another class, and no loss is declared late.
func TestHungCallsDelayNoOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 1}, nil)
		release := make(chan struct{})
		defer func() {
			close(release)
			r.w.Close()
		}()
		var all [20 * shardCount]Lease
		hung := func(l *Lease) bool { return l.home.Load() == &r.w.shards[0] && l.validity == int64(30*time.Second) }
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
			if hung(batch[0]) {
				<-release
			}
			return always(Renewed)(nil, batch)
		})
		var short Lease
		start := time.Now()
		for i := range all {
			r.keep(&all[i], 30*time.Second)
		}
		for short.home.Load() != &r.w.shards[0] {
			short = Lease{}
			r.keep(&short, time.Second)
			if short.home.Load() != &r.w.shards[0] {
				short.Disarm()
			}
		}
		pass(2 * time.Minute)
		require.True(t, short.Disarm())
		losses := r.lost()
		require.Len(t, losses, len(all)/shardCount)
		for _, x := range losses {
			require.True(t, hung(x.l))
			require.Equal(t, DeadlinePassed, x.cause)
			require.True(t, x.at.Equal(start.Add(30*time.Second)))
		}
	})
}

// A Renew that ends its goroutine leaves the outcomes unknown. Leases are renewed again afterwards.
func TestRenewThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 1}, nil)
		defer r.w.Close()
		leases := make([]Lease, 20*shardCount)
		for i := range leases {
			r.keep(&leases[i], 3*time.Second)
		}
		r.setReply(func(context.Context, []*Lease) []Outcome { runtime.Goexit(); return nil })
		pass(1500 * time.Millisecond)
		require.Greater(t, r.callCount(), len(leases))
		r.setReply(always(Renewed))
		pass(time.Minute)
		require.Empty(t, r.lost())
	})
}

// Leases beyond the end of a short result are unknown. Too many outcomes, and
// values that are no Outcome, change nothing.
func TestShortResultIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		leases := make([]Lease, 3*shardCount) // three in each shard
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome { return []Outcome{Renewed} })
		for i := range leases {
			r.keep(&leases[i], 3*time.Second)
		}
		pass(3 * time.Second)
		require.Empty(t, r.lost(), "one lease of each batch was renewed, and the retries were in another order each time")
		r.setReply(func(context.Context, []*Lease) []Outcome { return []Outcome{9, 9, 9, 9, 9} })
		pass(4 * time.Second)
		require.Len(t, r.lost(), len(leases))
	})
}
