package redis_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// A hold is broken by an operator. The waiter is woken at once, with a token that
// fences the old holder off, and the old holder is told by its next renewal.
func TestFault84ForcedRelease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	lost := make(chan *dlock.Hold, 10)
	o := patient
	o.OnLost = func(h *dlock.Hold) { lost <- h }
	holder, c := s.near(o), s.near(patient)
	s.handOver(holder, c, "a")
	h := s.lock(holder, "a")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	began := time.Now()
	if n, err := s.direct.Break(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("%d holds broken, %v", n, err)
	}
	next, at := waits.Granted(locktest.Soon)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	t.Log("woken after", at.Sub(began))
	select {
	case <-h.Done():
		if after := time.Since(began); after > patient.TTL/3+locktest.Late {
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
	s.over("a", patient)
	if len(lost) > 0 {
		t.Error("OnLost was called twice")
	}
}

// Thousands of calls lose patience at a random moment and many processes are
// killed. When their leases are over nothing is left of them: no key but the
// token counters, no subscription, and when the clients are closed no connection.
func TestNothingIsLeft(t *testing.T) {
	cancels, crashes := 2000, 10
	if os.Getenv("DLOCK_PROVE") != "" {
		cancels, crashes = 10_000, 100
	}
	o := dlock.Options{TTL: time.Second, StoreTimeout: 3 * time.Second}
	s := newSite(t)
	own := connections([]*redistest.Server{s.server})
	stores := []*redis.Store{open(t, s.server.URL()), open(t, s.server.URL()), open(t, s.server.URL())}
	var clients []*dlock.Client
	for _, st := range stores {
		clients = append(clients, locktest.NewClient(t, st, o))
	}
	var churning sync.WaitGroup
	for i := range 24 {
		churning.Go(func() {
			for range cancels / 24 {
				locktest.Churn(clients[i%len(clients)])
			}
		})
	}
	for range crashes {
		c := locktest.StartChild(t, "churn", s.server.URL(), "", o.TTL)
		c.Says("begun")
		<-time.After(rand.N(100 * time.Millisecond)) // the moment of its death
		c.Kill()
	}
	churning.Wait()
	over := time.Now().Add(o.TTL + 2*time.Second)
	s.empty(time.Until(over))
	locktest.Poll(t, "no subscription left", max(locktest.Soon, time.Until(over)), func() bool { return len(channels(s.server)) == 0 })
	for i, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stores[i].Close()
	}
	locktest.Poll(t, "no connection left", locktest.Soon, func() bool { return connections([]*redistest.Server{s.server}) <= own })
	for name := range strings.FieldsSeq(s.server.MustDo("KEYS", "*")) {
		if kind := s.server.MustDo("TYPE", name); kind != "string" {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}
