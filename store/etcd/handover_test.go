package etcd_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/store"
)

// newClient returns a client of dlock with connections of its own.
func newClient(t testing.TB, url string, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.New(open(t, url), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestHandOver: between two handles, with connections of their own as two
// processes would have, the slowest hand-overs take at most three times as long
// as the median.
func TestHandOver(t *testing.T) {
	url := etcdtest.Start(t, 1).URL()
	const number = 500
	inspector := open(t, url)
	var mutexes [2]*dlock.Mutex
	for i := range mutexes {
		mutexes[i] = newClient(t, url, nil).Mutex("hand-over")
	}
	hold, err := mutexes[0].LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	took := make([]time.Duration, 0, number)
	for i := range number {
		got := make(chan *dlock.Hold, 1)
		go func() {
			next, err := mutexes[(i+1)%2].LockContext(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		waitQueued(t, inspector, "hand-over")
		released := time.Now()
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
		if hold = <-got; hold == nil {
			t.FailNow()
		}
		took = append(took, time.Since(released))
	}
	hold.Unlock()
	slices.Sort(took)
	p50, p99 := took[number/2], took[number*99/100]
	t.Logf("hand-over p50 %v, p99 %v", p50, p99)
	if p99 > 3*p50 {
		t.Errorf("p99 %v is more than 3 times p50 %v", p99, p50)
	}
}

// waitQueued waits until somebody waits for a name.
func waitQueued(t testing.TB, s store.Store, name string) {
	t.Helper()
	for {
		state, err := s.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Queue) > 0 {
			return
		}
	}
}

// locker takes a lock and returns how to unlock it.
type locker func(ctx context.Context) (unlock func(), err error)

// TestThroughput: sixteen goroutines of one process want one lock. Each of the
// peer's has a session of its own, without which they would not exclude each
// other.
func TestThroughput(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	const workers, lasts = 16, 3 * time.Second
	rate := func(newLocker func() locker) float64 {
		lockers := make([]locker, workers)
		for i := range lockers {
			lockers[i] = newLocker()
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var wg sync.WaitGroup
		var turns atomic.Int64
		for _, lock := range lockers {
			wg.Go(func() {
				for {
					unlock, err := lock(ctx)
					if err != nil {
						return
					}
					turns.Add(1)
					unlock()
				}
			})
		}
		wg.Wait()
		return float64(turns.Load()) / lasts.Seconds()
	}
	m := newClient(t, cluster.URL(), nil).Mutex("throughput")
	ours := rate(func() locker {
		return func(ctx context.Context) (func(), error) {
			h, err := m.LockContext(ctx)
			return func() { h.Unlock() }, err
		}
	})
	client := cluster.Client(t)
	theirs := rate(func() locker {
		s, err := concurrency.NewSession(client)
		if err != nil {
			t.Fatal(err)
		}
		m := concurrency.NewMutex(s, "/theirs")
		return func(ctx context.Context) (func(), error) {
			err := m.Lock(ctx)
			return func() { m.Unlock(context.Background()) }, err
		}
	})
	t.Logf("hand-overs per second: %.0f, of concurrency.Mutex %.0f", ours, theirs)
	if ours < 5*theirs {
		t.Errorf("%.0f hand-overs per second are less than five times the %.0f of concurrency.Mutex", ours, theirs)
	}
}
