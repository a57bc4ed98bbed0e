package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// replaced is a handle whose hold was broken and followed by another one of the same handle, which has the same key
// on the same lease.
func replaced(t *testing.T, ttl time.Duration) (s *etcd.Store, lost, holds store.Request, client *clientv3.Client) {
	t.Helper()
	c := etcdtest.Start(t, 1)
	s = open(t, c.URL())
	lost, holds = newRequest("a", 1), newRequest("a", 2)
	lost.TTL, lost.WaitTTL, holds.TTL, holds.WaitTTL = ttl, ttl, ttl, ttl
	locktest.Hold(t, s, lost)
	if n, err := s.Break(t.Context(), "a"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	locktest.Hold(t, s, holds)
	return s, lost, holds, c.Client(t)
}

// remains fails unless the second hold is there.
func remains(t *testing.T, s *etcd.Store, holds store.Request) {
	t.Helper()
	if state, err := s.Inspect(t.Context(), "a"); err != nil || len(state.Holders) != 1 || state.Holders[0].ID != store.Short(holds.ID) {
		t.Errorf("%+v, %v", state, err)
	}
}

// A hold that was broken is not renewed by the hold that has its key now.
func TestFirstHoldIsRenewedByItsId(t *testing.T) {
	t.Parallel()
	s, lost, holds, _ := replaced(t, time.Minute)
	for range 2 {
		results := s.Renew(t.Context(), []store.Ref{locktest.RefTo(lost), locktest.RefTo(holds)})
		locktest.MustBe(t, results[0], store.ErrLost)
		if results[1] != nil {
			t.Error(results[1])
		}
	}
}

// A release ends the hold of its id alone, with a record of the hold and without one, and so does a burial.
func TestFirstHoldIsReleasedByItsId(t *testing.T) {
	t.Parallel()
	s, lost, holds, _ := replaced(t, time.Minute)
	for range 2 { // the second has no record
		locktest.MustBe(t, s.Release(t.Context(), locktest.RefTo(lost)), store.ErrLost)
		remains(t, s, holds)
	}
	bury := locktest.RefTo(lost)
	bury.Bury = true
	locktest.MustBe(t, s.Release(t.Context(), bury), store.ErrLost)
	remains(t, s, holds)
	if err := s.Release(t.Context(), locktest.RefTo(holds)); err != nil {
		t.Error(err)
	}
}

// The end of a hold's time does not end the hold that has its key now.
func TestFirstHoldEndsByItsId(t *testing.T) {
	t.Parallel()
	s, _, holds, _ := replaced(t, 3*time.Second)
	for s.Records() == 2 {
		if err := s.Renew(t.Context(), []store.Ref{locktest.RefTo(holds)})[0]; err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
	remains(t, s, holds)
}

// A key of no record is found though a hold of the handle was told that it has this key.
func TestFault97OrphanOfAFirstHold(t *testing.T) {
	t.Parallel()
	s, _, holds, client := replaced(t, 3*time.Second)
	key := etcd.HoldOf(holds)
	answer, err := client.Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatal(answer, err)
	}
	locktest.Release(t, s, holds)
	lease := clientv3.WithLease(clientv3.LeaseID(answer.Kvs[0].Lease))
	if _, err := client.Put(t.Context(), key, string(answer.Kvs[0].Value), lease); err != nil {
		t.Fatal(err)
	}
	keeps := newRequest("keeps the lease", 3)
	keeps.TTL, keeps.WaitTTL = holds.TTL, holds.WaitTTL
	locktest.Hold(t, s, keeps)
	locktest.Poll(t, "the name is free", locktest.Patience, func() bool {
		if err := s.Renew(t.Context(), []store.Ref{locktest.RefTo(keeps)})[0]; err != nil {
			t.Fatal(err)
		}
		state, err := s.Inspect(t.Context(), "a")
		return err == nil && len(state.Holders) == 0
	})
}
