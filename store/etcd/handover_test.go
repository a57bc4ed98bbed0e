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
	"github.com/dlock-go/dlock/internal/locktest"
)

// TestHandOver: a lock goes to and fro between two handles, with connections of
// their own as two processes would have. No hand-over takes much longer than the
// others do, as they would if a watch had to be opened for each.
//
// It does not run beside other tests, which it would measure too.
func TestHandOver(t *testing.T) {
	const rounds = 500
	most := time.Duration(3)
	if underRace {
		most = 10 // the detector makes all slower, and the slow ones slower still
	}
	s := newSite(t, 1)
	clients := []*dlock.Client{s.near(dlock.Options{}), s.near(dlock.Options{})}
	h := locktest.Lock(t, clients[0], "a")
	var took []time.Duration
	for round := range rounds + rounds/10 {
		waits := locktest.Begin(t, clients[(round+1)%2], "a")
		s.queued("a", 1)
		released := time.Now()
		locktest.Unlock(t, h)
		var at time.Time
		h, at = waits.Granted(locktest.Soon)
		if round >= rounds/10 { // the first warm up
			took = append(took, at.Sub(released))
		}
	}
	locktest.Unlock(t, h)
	slices.Sort(took)
	p50, p99 := took[rounds/2], took[rounds*99/100]
	t.Logf("hand-over: p50 %v, p99 %v, longest %v", p50, p99, took[rounds-1])
	if p99 > most*p50 {
		t.Errorf("p99 is %v, want at most %d times p50, which is %v", p99, most, p50)
	}
}

// locker takes a lock and returns how to unlock it.
type locker func(ctx context.Context) (unlock func(), err error)

// TestSixteenGoroutines: sixteen goroutines of a process that want one lock take
// a few transactions a turn and hardly anything else. So they get it some times
// as often as with the mutex of etcd's own client, which opens a watch for each
// wait; by how much depends on the processors, for it waits and we do not.
func TestSixteenGoroutines(t *testing.T) {
	const turns = 2000
	cluster := etcdtest.Start(t, 1)
	s, requests := counted(t, cluster)
	m := locktest.NewClient(t, s, dlock.Options{}).Mutex("ours")
	ours := func() locker {
		return func(ctx context.Context) (func(), error) {
			h, err := m.LockContext(ctx)
			return func() { h.Unlock() }, err
		}
	}
	// Each has a session of its own, without which they would not exclude each other.
	client := cluster.Client(t)
	theirs := func() locker {
		session, err := concurrency.NewSession(client)
		if err != nil {
			t.Fatal(err)
		}
		m := concurrency.NewMutex(session, "/theirs")
		return func(ctx context.Context) (func(), error) {
			err := m.Lock(ctx)
			return func() { m.Unlock(context.Background()) }, err
		}
	}
	requests.take()
	a := turnsPerSecond(t, ours, turns)
	sent := requests.take()
	b := turnsPerSecond(t, theirs, turns/8)
	t.Logf("%.0f turns a second with %v, with concurrency.Mutex %.0f: %.1f times as many", a, sent, b, a/b)
	other := 0
	for method, n := range sent {
		if method != "Txn" {
			other += n
		}
	}
	if sent["Txn"] > 4*turns || other > 2*turns {
		t.Errorf("%v for %d turns, want at most 4 transactions and 2 others each", sent, turns)
	}
	if !underRace && a < b {
		t.Errorf("%.1f times as many turns as with concurrency.Mutex", a/b)
	}
}

func turnsPerSecond(t *testing.T, newLocker func() locker, turns int64) float64 {
	t.Helper()
	var lockers [16]locker
	for i := range lockers {
		lockers[i] = newLocker()
	}
	var left atomic.Int64
	left.Store(turns)
	began := time.Now()
	var wg sync.WaitGroup
	for _, lock := range lockers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				unlock, err := lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				unlock()
			}
		})
	}
	wg.Wait()
	return float64(turns) / time.Since(began).Seconds()
}
