package zookeeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

const lease = 10 * time.Second

// quiet is a logger for the client.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a connection that the test closes.
func connect(t testing.TB, e *zookeepertest.Ensemble) *zk.Conn {
	t.Helper()
	var hosts []string
	for _, m := range e.Members {
		hosts = append(hosts, m.Addr)
	}
	c, _, err := zk.Connect(hosts, 10*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// pathOf is the node of a name of which every byte is plain or a slash.
func pathOf(name string) string { return zookeeper.PathOf(name) }

func children(t testing.TB, c *zk.Conn, path string) []string {
	t.Helper()
	if _, err := c.Sync(path); err != nil {
		t.Fatal(err)
	}
	list, _, err := c.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// open opens a handle that the test closes.
func open(t testing.TB, url string) *zookeeper.Store {
	t.Helper()
	s := opened(t, url)
	t.Cleanup(func() { s.Close() })
	return s
}

func request(name string, n int, queue bool) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%06x%026x", n, n), Queue: queue,
		TTL: lease, WaitTTL: lease, Tokens: 1,
	}
}

func refOf(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: req.TTL}
}

func hold(t testing.TB, s store.Store, req store.Request) store.Grant {
	t.Helper()
	g, err := s.Acquire(context.Background(), req)
	if err != nil || !g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it held", g, err)
	}
	return g
}

func queue(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if g, err := s.Acquire(context.Background(), req); err != nil || g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it queued", g, err)
	}
}

func release(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Release(context.Background(), refOf(req)); err != nil {
		t.Fatalf("Release: got %v, want nil", err)
	}
}

// hear returns a channel of the events of a handle.
func hear(s store.Store) <-chan store.Event {
	events := make(chan store.Event, 1000)
	s.Listen(func(e store.Event) {
		select {
		case events <- e:
		default:
		}
	})
	return events
}

// wantEvent waits for an event that ok accepts.
func wantEvent(t testing.TB, events <-chan store.Event, what string, ok func(store.Event) bool) {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	for {
		select {
		case e := <-events:
			if ok(e) {
				return
			}
		case <-timer.C:
			t.Fatalf("no event: %s", what)
		}
	}
}

// wantGranted waits until a waiter is granted, as the core does: it asks again
// when an event of the request has no token.
func wantGranted(t testing.TB, s store.Store, events <-chan store.Event, req store.Request) {
	t.Helper()
	wantEvent(t, events, "the waiter is granted", func(e store.Event) bool {
		if e.ID != req.ID || e.Token > 0 {
			return e.ID == req.ID
		}
		var g store.Grant
		await(t, "the request is answered", func() (ok bool) {
			var err error
			g, err = s.Acquire(t.Context(), req)
			return err == nil
		})
		return g.Held
	})
}

// await waits until ok. A busy machine takes long to elect a leader.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	const most = time.Minute
	for deadline := time.Now().Add(most); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true after %v: %s", most, what)
		}
	}
}
