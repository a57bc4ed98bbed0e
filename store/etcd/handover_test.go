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

// BenchmarkHandOver: between two handles, with connections of their own as two
// processes would have, from the unlock to the lock.
func BenchmarkHandOver(b *testing.B) {
	url := etcdtest.Start(b, 1).URL()
	inspector := open(b, url)
	var mutexes [2]*dlock.Mutex
	for i := range mutexes {
		mutexes[i] = newClient(b, url, nil).Mutex("hand-over")
	}
	hold, err := mutexes[0].LockContext(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		got := make(chan *dlock.Hold, 1)
		go func() {
			next, err := mutexes[(i+1)%2].LockContext(b.Context())
			if err != nil {
				b.Error(err)
			}
			got <- next
		}()
		waitQueued(b, inspector, "hand-over")
		released := time.Now()
		if err := hold.Unlock(); err != nil {
			b.Fatal(err)
		}
		if hold = <-got; hold == nil {
			b.FailNow()
		}
		took = append(took, time.Since(released))
	}
	hold.Unlock()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
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

// Benchmark16 is about sixteen goroutines of one process that want one lock: an
// operation is one turn.
func Benchmark16(b *testing.B) {
	cluster := etcdtest.Start(b, 1)
	b.Run("dlock", func(b *testing.B) {
		m := newClient(b, cluster.URL(), nil).Mutex("throughput")
		takeTurns(b, func() locker {
			return func(ctx context.Context) (func(), error) {
				h, err := m.LockContext(ctx)
				return func() { h.Unlock() }, err
			}
		})
	})
	// Each has a session of its own, without which they would not exclude each other.
	b.Run("concurrency.Mutex", func(b *testing.B) {
		client := cluster.Client(b)
		takeTurns(b, func() locker {
			s, err := concurrency.NewSession(client)
			if err != nil {
				b.Fatal(err)
			}
			m := concurrency.NewMutex(s, "/theirs")
			return func(ctx context.Context) (func(), error) {
				err := m.Lock(ctx)
				return func() { m.Unlock(context.Background()) }, err
			}
		})
	})
}

func takeTurns(b *testing.B, newLocker func() locker) {
	var lockers [16]locker
	for i := range lockers {
		lockers[i] = newLocker()
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, lock := range lockers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				unlock, err := lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				unlock()
			}
		})
	}
	wg.Wait()
}
