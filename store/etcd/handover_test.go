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
	if underRace || testing.CoverMode() != "" {
		most = 10 // both make all slower, and the slow ones slower still
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

// TestSixteenGoroutines: sixteen goroutines of a process that want one lock have
// at least five times as many turns as with the mutex of etcd's own client, which
// opens a watch for each wait. Where every turn goes through the store it takes a
// few transactions and hardly anything else, and by how much that is faster
// depends on the processors, for the other waits and this does not.
func TestSixteenGoroutines(t *testing.T) {
	const turns = 2000
	cluster := etcdtest.Start(t, 1)
	s, requests := counted(t, cluster)
	ours := func(handoffs int) func() locker {
		m := locktest.NewClient(t, s, dlock.Options{LocalHandoffs: handoffs}).Mutex("ours")
		return func() locker {
			return func(ctx context.Context) (func(), error) {
				h, err := m.LockContext(ctx)
				return func() { h.Unlock() }, err
			}
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
	peer := turnsPerSecond(t, theirs, turns/8)
	for _, tc := range []struct {
		what         string
		handoffs     int
		txns, others int // at most
		faster       float64
	}{
		{"within the process", 0, turns / 4, turns / 4, 5},
		{"through the store", -1, 4 * turns, 2 * turns, 1},
	} {
		requests.take()
		rate := turnsPerSecond(t, ours(tc.handoffs), turns)
		sent := requests.take()
		t.Logf("%s: %.0f turns a second with %v, with concurrency.Mutex %.0f: %.1f times as many", tc.what, rate, sent, peer, rate/peer)
		other := 0
		for method, n := range sent {
			if method != "Txn" {
				other += n
			}
		}
		if sent["Txn"] > tc.txns || other > tc.others {
			t.Errorf("%s: %v for %d turns, want at most %d transactions and %d others", tc.what, sent, turns, tc.txns, tc.others)
		}
		if !underRace && testing.CoverMode() == "" && rate < tc.faster*peer {
			t.Errorf("%s: %.1f times as many turns as with concurrency.Mutex, want %v", tc.what, rate/peer, tc.faster)
		}
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
