package etcd_test

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store/etcd"
)

// A hold is broken by an operator. The waiter is woken at once, with a token that
// fences the old holder off, and the old holder is told by its next renewal.
func TestFault84ForcedRelease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := longLease
	lost := make(chan *dlock.Hold, 10)
	o.OnLost = func(h *dlock.Hold) { lost <- h }
	h := locktest.Lock(t, s.near(o), "a")
	waits := locktest.Begin(t, s.near(longLease), "a")
	s.queued("a", 1)
	locktest.Poll(t, "a watch", locktest.Soon, func() bool { return s.cluster.Members[0].Watchers() == 1 })
	began := time.Now()
	if n, err := s.direct.Break(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("%d holds broken, %v", n, err)
	}
	next, _ := waits.Granted(locktest.Soon)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	select {
	case <-h.Done():
		if after := time.Since(began); after > o.TTL/3+locktest.Late {
			t.Errorf("told after %v", after)
		}
	case <-time.After(locktest.Patience):
		t.Fatal("the holder is not told")
	}
	if got := <-lost; got != h {
		t.Error("OnLost was called with another hold")
	}
	locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", longLease)
	if len(lost) > 0 {
		t.Error("OnLost was called twice")
	}
}

// Many calls lose patience at a random moment and processes are killed. When
// their leases are over no key and no lease is left of them, and when the handles
// are closed no watch.
//
// It keeps the machine busy, so it does not run beside others.
func TestNothingIsLeftOfChurn(t *testing.T) {
	cancels, crashes := 1000, 5
	if os.Getenv("DLOCK_PROVE") != "" {
		cancels, crashes = 10_000, 100
	}
	o := dlock.Options{TTL: time.Second, StoreTimeout: 3 * time.Second}
	s := newSite(t, 1)
	var stores []*etcd.Store
	var clients []*dlock.Client
	for _, on := range []*etcd.Store{open(t, s.cluster.URL()), open(t, s.cluster.URL()), s.wire.store(t, s.cluster.Endpoints())} {
		stores, clients = append(stores, on), append(clients, locktest.NewClient(t, on, o))
	}
	var churning sync.WaitGroup
	for i := range 24 {
		churning.Go(func() {
			for range cancels/24 + 1 {
				locktest.Churn(clients[i%len(clients)])
			}
		})
	}
	for range crashes {
		c := locktest.StartChild(t, "churn", s.cluster.URL(), "", o.TTL)
		c.Says("begun")
		<-time.After(rand.N(100 * time.Millisecond)) // the moment of its death
		c.Kill()
	}
	churning.Wait()
	over := o.StoreTimeout + o.TTL + lag + locktest.Late // what had an unknown outcome is buried that late
	s.empty(over)
	locktest.Poll(t, "no lease left", over, func() bool { return s.leases() == 0 })
	for i, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stores[i].Close()
	}
	locktest.Poll(t, "no watch left", locktest.Soon, func() bool { return s.cluster.Members[0].Watchers() == 0 })
}
