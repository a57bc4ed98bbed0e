package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// What the handle notes of a hold or a place does not grow with the time for which
// it is renewed or waited for.
func TestNotesDoNotPileUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	held, waits := locktest.Request("a", 1), locktest.Request("a", 2)
	held.TTL, waits.TTL, waits.WaitTTL = time.Minute, time.Minute, time.Minute
	for range 50 {
		if _, err := s.direct.Acquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if err := s.direct.Renew(t.Context(), []store.Ref{locktest.RefTo(held)})[0]; err != nil {
			t.Fatal(err)
		}
		if _, err := s.direct.Acquire(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.direct.Records(); n != 2 {
		t.Errorf("%d records of 2 ids", n)
	}
}

// What was refused for want of a right has left nothing, and nothing to be deleted.
func TestRefusedLeavesNoNote(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	guard(t, c)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "locker", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s, err := etcd.New(client, &etcd.Options{Prefix: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	_, err = s.Acquire(t.Context(), locktest.Request("a", 1))
	locktest.MustBe(t, err, store.ErrRefused)
	if n := s.Records(); n != 0 {
		t.Errorf("%d records", n)
	}
}

// A fixed hold that was granted to its place stays on the lease of places, if that
// lives longer than the hold. Its release does not end what else hangs there.
func TestFixedHoldReleasedAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	waiter := open(t, s.cluster.URL())
	request := func(name string, n int, ttl time.Duration) store.Request {
		r := locktest.Request(name, n)
		r.Fixed, r.TTL, r.WaitTTL = true, ttl, ttl
		return r
	}
	ask := func(on store.Store, r store.Request, held bool) {
		t.Helper()
		if g, err := on.Acquire(t.Context(), r); err != nil || g.Held != held {
			t.Fatalf("got %+v, %v", g, err)
		}
	}
	const lease = 10500 * time.Millisecond // the lease of places has 12 s
	first := map[string]store.Request{"a": request("a", 1, time.Minute), "b": request("b", 2, time.Minute)}
	second := map[string]store.Request{"a": request("a", 3, lease), "b": request("b", 4, lease)}
	for name := range first {
		ask(s.direct, first[name], true)
		ask(waiter, second[name], false)
	}
	for name := range first {
		locktest.Release(t, s.direct, first[name])
		locktest.Poll(t, "the grant", locktest.Patience, func() bool { return len(s.state(name).Holders) == 1 })
		ask(waiter, second[name], true)
	}
	locktest.Release(t, waiter, second["a"])
	for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if n := len(s.state("b").Holders); n != 1 {
			t.Fatalf("b has %d holders after the release of a", n)
		}
	}
	if err := waiter.Release(t.Context(), locktest.RefTo(second["b"])); err != nil {
		t.Error(err)
	}
}

// A place that lasts longer than the hold is to makes a hold on its lease. The first renewal puts it on a lease of its
// own length. Otherwise a process that dies keeps the name for as long as its places.
func TestHoldOutlivesItsProcessByItsOwnLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	waiter := open(t, s.cluster.URL())
	first, second := locktest.Request("a", 1), locktest.Request("a", 2)
	second.TTL, second.WaitTTL = 3*time.Second, time.Minute
	locktest.Hold(t, s.direct, first)
	locktest.Queue(t, waiter, second)
	locktest.Release(t, s.direct, first)
	locktest.Poll(t, "the grant", locktest.Patience, func() bool { return len(s.state("a").Holders) == 1 })
	ref := locktest.RefTo(second)
	ref.TTL = second.TTL
	if err := waiter.Renew(t.Context(), []store.Ref{ref})[0]; err != nil {
		t.Fatal(err)
	}
	if left := s.state("a").Holders[0].Remaining; left > second.TTL+time.Second {
		t.Errorf("without its process the hold lasts for %v, want some %v", left, second.TTL)
	}
	locktest.Release(t, waiter, second)
}
