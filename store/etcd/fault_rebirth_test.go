package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// The server comes back without its data while a handle waits, and its revisions
// come to where they had been. Nothing that the handle knew of the former life is taken
// for what there is now: nobody is granted beside a hold that it has not heard of.
func TestFault15RevisionsComeBack(t *testing.T) {
	t.Parallel()
	for what, open := range map[string]func(*site) *etcd.Store{
		"its own client": func(s *site) *etcd.Store { return open(s.t, s.cluster.URL()) },
		"a namespace":    (*site).inNamespace,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			revisionsComeBack(t, open)
		})
	}
}

// inNamespace is a handle by a client whose watches are not as etcd's client makes them.
func (s *site) inNamespace() *etcd.Store {
	s.t.Helper()
	c := s.cluster.Client(s.t)
	inNamespace(c)
	h, err := etcd.New(c, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { h.Close() })
	return h
}

func inNamespace(c *clientv3.Client) {
	c.KV, c.Watcher = namespace.NewKV(c.KV, "ours/"), namespace.NewWatcher(c.Watcher, "ours/")
}

func revisionsComeBack(t *testing.T, open func(*site) *etcd.Store) {
	s := newSite(t, 1)
	mine, first, second := open(s), open(s), open(s)
	s.direct = open(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request := func(n int, m store.Mode) store.Request {
		r := locktest.Request("a", n)
		r.Mode, r.TTL, r.WaitTTL = m, 20*time.Second, 20*time.Second
		return r
	}
	ask := func(on store.Store, r store.Request, held bool) {
		t.Helper()
		g, err := on.Acquire(ctx, r)
		for ; err != nil && ctx.Err() == nil; g, err = on.Acquire(ctx, r) {
			<-time.After(20 * time.Millisecond) // the server is not back yet
		}
		if err != nil || g.Held != held {
			t.Fatalf("%s: %+v, %v", r.Owner, g, err)
		}
	}
	release := func(on store.Store, r store.Request) {
		t.Helper()
		if err := on.Release(ctx, locktest.RefTo(r)); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(r store.Request) {
		t.Helper()
		locktest.Poll(t, "the watch has told", locktest.Patience, func() bool { return mine.Sees("a", r.ID) })
	}

	reader, other := request(1, store.Shared), request(2, store.Shared)
	writer, passing, last := request(3, store.Exclusive), request(4, store.Exclusive), request(5, store.Exclusive)
	ask(first, reader, true)
	ask(mine, writer, false)
	s.pass(300)
	ask(second, passing, false)
	seen(passing) // so what mine knows is of a high revision
	release(second, passing)

	s.cluster.Members[0].RestartEmpty()
	ask(first, reader, true)
	ask(second, other, true)
	ask(mine, writer, false)
	s.pass(400)
	release(mine, writer)
	ask(mine, last, false)
	seen(last)
	release(first, reader)
	<-time.After(300 * time.Millisecond)
	if state := s.state("a"); len(state.Holders) != 1 || state.Holders[0].Mode != store.Shared || len(state.Queue) != 1 {
		t.Fatalf("beside a reader: %+v", state)
	}
	release(second, other)
	locktest.Poll(t, "who waits is granted it", locktest.Soon, func() bool { return len(s.state("a").Queue) == 0 })
	ask(mine, last, true)
}

// It comes back so amid a grant of a handle whose watch does not notice. The handle
// does not go on trying, and its next waiter is granted upon a release.
func TestFault15RebirthUnnoticed(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	other := s.inNamespace()
	mine := s.wire.storeBy(t, s.cluster.Endpoints(), inNamespace)
	holder, waiter, again, next := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3), locktest.Request("a", 4)
	for _, r := range []*store.Request{&holder, &waiter, &again, &next} {
		r.TTL, r.WaitTTL = time.Minute, time.Minute
	}
	s.pass(50)
	acquire := func(on store.Store, r store.Request, held bool) {
		t.Helper()
		locktest.Poll(t, "the server answers", locktest.Patience, func() bool {
			g, err := on.Acquire(t.Context(), r)
			if err == nil && g.Held != held {
				t.Fatalf("%s: %+v", r.Owner, g)
			}
			return err == nil
		})
	}
	acquire(other, holder, true)
	acquire(mine, waiter, false)
	locktest.Poll(t, "the watch has told", locktest.Patience, func() bool { return mine.Sees("a", waiter.ID) })
	s.wire.on("Txn", hold)
	locktest.Release(t, other, holder)
	locktest.Poll(t, "the grant is on its way", locktest.Patience, func() bool { return s.wire.requests("Txn") == 1 })
	s.cluster.Members[0].RestartEmpty()
	s.wire.on("", pass)
	s.wire.arrive()
	acquire(other, again, true)
	before := s.wire.requests("Txn")
	<-time.After(500 * time.Millisecond)
	if n := s.wire.requests("Txn") - before; n > 20 {
		t.Errorf("%d transactions in half a second", n)
	}
	acquire(mine, next, false)
	locktest.Poll(t, "the watch has told", locktest.Patience, func() bool { return mine.Sees("a", next.ID) })
	locktest.Release(t, other, again)
	locktest.Poll(t, "it is granted", locktest.Soon, func() bool {
		state, err := other.Inspect(t.Context(), "a")
		return err == nil && len(state.Holders) == 1 && len(state.Queue) == 0
	})
}

// It comes back so between the look of a request at its name and the transaction by
// which that is granted.
func TestFault15RebirthAmidAGrant(t *testing.T) {
	t.Parallel()
	for what, shared := range map[string]bool{"free": false, "a reader": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			mine, other := open(t, s.cluster.URL()), open(t, s.cluster.URL())
			s.pass(50)
			r, reader, writer := locktest.Request("a", 1), locktest.Request("a", 2), locktest.Request("a", 3)
			r.Mode, reader.Mode = store.Shared, store.Shared
			writer.TTL = time.Minute // longer than a handle takes to connect again
			if shared {
				locktest.Hold(t, other, reader)
			}
			grant := mine.Grants(t, r)
			s.cluster.Members[0].RestartEmpty()
			locktest.Poll(t, "the server is back", locktest.Patience, func() bool {
				g, err := other.Acquire(t.Context(), writer)
				return err == nil && g.Held
			})
			locktest.Poll(t, "the server is back here too", locktest.Patience, func() bool {
				_, err := mine.Inspect(t.Context(), "a")
				return err == nil
			})
			if done, err := grant(); done || err != nil {
				t.Errorf("granted beside a writer: %v, %v", done, err)
			}
		})
	}
}

// pass lets so many revisions pass.
func (s *site) pass(n int) {
	s.t.Helper()
	for range n {
		if _, err := s.admin.Put(context.Background(), "elsewhere", ""); err != nil {
			s.t.Fatal(err)
		}
	}
}
