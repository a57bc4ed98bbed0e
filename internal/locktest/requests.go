package locktest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Request returns a request for name with the n-th id and the n-th owner. Ids differ in what
// store.Short shows of them.
func Request(name string, n int) store.Request {
	return store.Request{
		Name: name, Owner: "owner-" + strconv.Itoa(n), ID: fmt.Sprintf("%06x%026x", n, n),
		TTL: 2 * time.Second, WaitTTL: 2 * time.Second, Queue: true, Tokens: 1,
	}
}

// Lease is the lease of a LongRequest.
const Lease = 10 * time.Second

// LongRequest is Request with a lease that does not end in a test. It says whether to queue.
func LongRequest(name string, n int, queue bool) store.Request {
	r := Request(name, n)
	r.TTL, r.WaitTTL, r.Queue = Lease, Lease, queue
	return r
}

// RefTo returns the Ref that releases or renews the hold or place of r.
func RefTo(r store.Request) store.Ref {
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: max(r.TTL, r.WaitTTL)}
}

// Hold makes a request that has to be granted at once.
func Hold(t testing.TB, s store.Store, r store.Request) store.Grant {
	t.Helper()
	g, err := s.Acquire(context.Background(), r)
	if err != nil || !g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it held", g, err)
	}
	return g
}

// Queue makes a request that has to be queued.
func Queue(t testing.TB, s store.Store, r store.Request) {
	t.Helper()
	if g, err := s.Acquire(context.Background(), r); err != nil || g.Held {
		t.Fatalf("Acquire: got %+v, %v, want it queued", g, err)
	}
}

// Release gives up the hold or place of a request, which has to be there.
func Release(t testing.TB, s store.Store, r store.Request) {
	t.Helper()
	if err := s.Release(context.Background(), RefTo(r)); err != nil {
		t.Fatalf("Release: got %v, want nil", err)
	}
}

// LearnClock takes and releases a lock beside name. A ZooKeeper handle knows the server's clock
// from what it writes, and knows it best just after that.
func LearnClock(t testing.TB, s store.Store, name string) {
	t.Helper()
	r := Request(name+", the clock", 1)
	Hold(t, s, r)
	Release(t, s, r)
}

// Certain reports whether a caller would take err for a certain refusal.
func Certain(err error) bool {
	for _, s := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// Hear returns a channel of the events of a handle. The first thousand wait there.
func Hear(s store.Store) <-chan store.Event {
	events := make(chan store.Event, 1000)
	s.Listen(func(e store.Event) {
		select {
		case events <- e:
		default:
		}
	})
	return events
}

// WantEvent waits for an event that ok accepts.
func WantEvent(t testing.TB, events <-chan store.Event, what string, ok func(store.Event) bool) {
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
