package zookeeper_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// What tests of stores share, by short names.
var (
	request = locktest.LongRequest
	refOf   = locktest.RefTo
	hold    = locktest.Hold
	queue   = locktest.Queue
	release = locktest.Release
	hear    = locktest.Hear

	wantEvent = locktest.WantEvent
)

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
	locktest.Poll(t, what, time.Minute, ok)
}
