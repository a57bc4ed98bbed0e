package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// An ask that was sent in time is answered when the time of its place is up, for
// the server stood still. Whoever is told then that it waits does wait: its place
// is not taken away by the end that had been ordered before the answer came.
func TestPlaceOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	holder, waiter := open(t, cluster.URL()), open(t, cluster.URL())
	first, second := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL = time.Minute
	locktest.Hold(t, holder, first)
	for round := range 2 {
		locktest.Queue(t, waiter, second)
		asked := time.Now()
		cluster.Members[0].Pause()
		answered := make(chan error, 1)
		time.Sleep(second.WaitTTL / 4)
		go func() {
			_, err := waiter.Acquire(t.Context(), second)
			answered <- err
		}()
		time.Sleep(time.Until(asked.Add(second.WaitTTL + 100*time.Millisecond)))
		cluster.Members[0].Resume()
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(second.WaitTTL / 4); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			state, err := holder.Inspect(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if len(state.Queue) != 1 {
				t.Fatalf("round %d: the queue is %+v after it was told that it waits", round, state.Queue)
			}
		}
	}
}

// muted returns a handle and what makes the streams of one method fail, of none at first.
func muted(t *testing.T, c *etcdtest.Cluster) (s *etcd.Store, mute func(method string)) {
	t.Helper()
	var muted atomic.Value
	muted.Store("/none")
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, muted.Load().(string)) {
				return nil, status.Error(codes.PermissionDenied, "not in this test")
			}
			return stream(ctx, desc, cc, method, opts...)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = etcd.New(client, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); client.Close() })
	return s, func(method string) { muted.Store("/" + method) }
}

// A place is never put on a lease that ends before the place does, not even until the lease is renewed: the waiter
// could be granted the lock in between, and lose it at once.
func TestPlaceIsNotTakenOnAnEndingLease(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s, mute := muted(t, cluster)
	for n := range 2 { // the second waits, so that the next may take its place at once
		r := newRequest("a", n)
		r.Queue = true
		if g, err := s.Acquire(t.Context(), r); err != nil || g.Held != (n == 0) {
			t.Fatalf("%d: %+v, %v", n, g, err)
		}
	}
	s.Age()
	mute("LeaseKeepAlive")
	r := newRequest("a", 2)
	r.Queue = true
	if g, err := s.Acquire(t.Context(), r); err == nil {
		t.Fatalf("%+v without a renewal", g)
	}
	if keys, err := cluster.Client(t).Get(t.Context(), etcd.PlaceOf(r)); err != nil || len(keys.Kvs) != 0 {
		t.Errorf("it left a place: %v, %v", keys.Kvs, err)
	}
	mute("none")
	if g, err := s.Acquire(t.Context(), r); err != nil || g.Position != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}

// A hold whose time was up when it was asked for again is not taken away by the deletion that was on its way.
func TestHoldOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.Start(t, 1).URL())
	r := newRequest("a", 1)
	locktest.Hold(t, s, r)
	deletion := s.EndLate(t, r)
	locktest.Poll(t, "the hold", locktest.Patience, func() bool {
		g, err := s.Acquire(t.Context(), r)
		return err == nil && g.Held
	})
	if deletion() {
		t.Error("the deletion that was ordered before has ended the hold")
	}
	if state, err := s.Inspect(t.Context(), "a"); err != nil || len(state.Holders) != 1 {
		t.Errorf("%+v, %v", state, err)
	}
}

// The time of a place was up, and its deletion was ordered. Meanwhile another handle granted it, and asking again told
// of the hold. The deletion does not take it away.
func TestGrantOutlivesTheEndOfItsPlace(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s, mute := muted(t, cluster)
	other := open(t, cluster.URL())
	first, second := newRequest("a", 1), newRequest("a", 2)
	second.Queue = true
	locktest.Hold(t, other, first)
	locktest.Queue(t, s, second)
	mute("Watch")
	late := s.EndOrdered(second.ID)
	locktest.Release(t, other, first)
	if _, err := other.Inspect(t.Context(), "a"); err != nil { // makes the hold of the waiter
		t.Fatal(err)
	}
	locktest.Hold(t, s, second)
	if err := late(); err != nil {
		t.Error(err)
	}
	if state, err := s.Inspect(t.Context(), "a"); err != nil || len(state.Holders) != 1 {
		t.Errorf("%+v, %v: the late deletion has ended the hold", state, err)
	}
}

// A reader waits behind a reader of a handle that is dead, and both are granted. Its owner asks for an upgrade before
// the hold of either is made. Both are made then, and the upgrade is refused.
func TestUpgradeBehindAGrantThatIsNotMade(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s, mute := muted(t, cluster)
	other := open(t, cluster.URL())
	writer, first, second := newRequest("a", 1), newRequest("a", 2), newRequest("a", 3)
	locktest.Hold(t, other, writer)
	mute("Watch") // so that neither reader makes its hold
	for _, r := range []*store.Request{&first, &second} {
		r.Queue, r.Mode = true, store.Shared
		locktest.Queue(t, s, *r)
	}
	locktest.Release(t, other, writer)
	upgrade := newRequest("a", 4)
	upgrade.Owner = second.Owner
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if g, err := s.Acquire(ctx, upgrade); !errors.Is(err, store.ErrUpgrade) {
		t.Errorf("%+v, %v, want ErrUpgrade", g, err)
	}
	if state, err := other.Inspect(t.Context(), "a"); err != nil || len(state.Holders) != 2 {
		t.Errorf("%+v, %v, want two readers", state, err)
	}
}

// Readers that are granted together have tokens next to each other. A re-entry of one of them claims none but its own.
func TestReentryReservesNoTokens(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.Start(t, 1).URL())
	writer := newRequest("a", 1)
	if g, err := s.Acquire(t.Context(), writer); err != nil || !g.Held || g.Short != 0 {
		t.Fatalf("%+v, %v", g, err)
	}
	again := newRequest("a", 2)
	again.Owner, again.Tokens = writer.Owner, 10
	for range 2 { // the second answer is read from the key
		if g, err := s.Acquire(t.Context(), again); err != nil || !g.Held || g.Short != 9 {
			t.Errorf("%+v, %v, want Short 9", g, err)
		}
	}
}

// A waiter that asks again does not become a hold on a lease that is about to end, not even until that is renewed.
func TestHoldIsNotMadeOnAnEndingLease(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s, mute := muted(t, cluster)
	holder := open(t, cluster.URL())
	mute("Watch") // so that the waiter is granted the lock by asking alone
	first, second := newRequest("a", 1), newRequest("a", 2)
	second.Queue = true
	for _, r := range []store.Request{newRequest("makes the lease", 3), second} {
		if r.Name == "a" {
			locktest.Hold(t, holder, first)
		}
		if g, err := s.Acquire(t.Context(), r); err != nil || g.Held != (r.Name != "a") {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	locktest.Release(t, holder, first)
	s.Age()
	mute("LeaseKeepAlive")
	if g, err := s.Acquire(t.Context(), second); err == nil {
		t.Fatalf("%+v without a renewal", g)
	}
	if keys, err := cluster.Client(t).Get(t.Context(), etcd.HoldOf(second)); err != nil || len(keys.Kvs) != 0 {
		t.Errorf("it left a hold: %v, %v", keys.Kvs, err)
	}
	mute("none")
	if g, err := s.Acquire(t.Context(), second); err != nil || !g.Held {
		t.Errorf("%+v, %v", g, err)
	}
}

// A hold is a place again after a snapshot was restored that is older than its grant. Its release ends the place too.
func TestFault96ReleaseOfAHoldThatIsAPlaceAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			waiter := open(t, s.cluster.URL())
			told := make(chan store.Event, 1)
			waiter.Listen(func(e store.Event) { told <- e })
			first, second := newRequest("a", 1), newRequest("a", 2)
			second.Queue, second.Mode, second.WaitTTL = true, mode, time.Minute // longer than the server takes to go back
			locktest.Hold(t, s.direct, first)
			locktest.Queue(t, waiter, second)
			s.cluster.Save()
			locktest.Release(t, s.direct, first)
			heard(t, told)
			s.cluster.GoBack()
			if keys, err := s.admin.Get(t.Context(), etcd.PlaceOf(second)); err != nil || len(keys.Kvs) != 1 {
				t.Fatalf("the fault has not bitten: %v, %v", keys, err)
			}
			locktest.Release(t, waiter, second)
			if keys, err := s.admin.Get(t.Context(), etcd.PlaceOf(second)); err != nil || len(keys.Kvs) != 0 {
				t.Errorf("the place is there still: %v, %v", keys, err)
			}
		})
	}
}
