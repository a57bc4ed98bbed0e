package kv_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// TestPolling: without messages a waiter of another handle is found soon, and
// one that waits long costs few steps.
func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		var steps atomic.Int64
		count := func() error { steps.Add(1); return nil }
		s := open(t, &backend{table: table}, nil)
		polling := open(t, &backend{table: table, before: count}, &kv.Options{Poll: 10 * time.Millisecond, MaxPoll: time.Second})
		if !polling.Polls() {
			t.Error("a backend without a Notifier does not poll")
		}
		events := hear(polling)
		holder, waiter := request("n", 1, false), request("n", 2, true)
		holder.TTL, waiter.WaitTTL = time.Hour, time.Hour
		hold(t, s, holder)
		queue(t, polling, waiter)
		time.Sleep(100 * time.Second)
		if n := steps.Load(); n > 110 {
			t.Errorf("%d steps in 100 seconds", n)
		}
		s.Release(t.Context(), refOf(holder))
		time.Sleep(time.Second)
		if got := events(); len(got) != 1 || got[0] != (store.Event{ID: waiter.ID, Token: 2}) {
			t.Errorf("got %+v, want one event with token 2", got)
		}
		before := steps.Load()
		time.Sleep(time.Minute)
		if n := steps.Load() - before; n != 0 {
			t.Errorf("%d steps without a waiter", n)
		}
	})
}

// TestPollingTellsOnce: a grant that the handle finds by looking, before the step that
// made it has returned, is told once.
func TestPollingTellsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &late{backend: backend{table: newTable()}}
		s := open(t, b, &kv.Options{Poll: 10 * time.Millisecond})
		events := hear(s)
		holder, waiter := request("n", 1, false), request("n", 2, true)
		hold(t, s, holder)
		queue(t, s, waiter)
		b.next.Store(int64(time.Second))
		if err := s.Release(t.Context(), refOf(holder)); err != nil {
			t.Errorf("Release: got %v", err)
		}
		if got := events(); len(got) != 1 || got[0] != (store.Event{ID: waiter.ID, Token: 2}) {
			t.Errorf("got %+v, want one event with token 2", got)
		}
	})
}

// late is a backend whose next step returns late, after its commit.
type late struct {
	backend
	next atomic.Int64 // by how much
}

func (l *late) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	by := time.Duration(l.next.Swap(0))
	err := l.backend.Update(ctx, names, f)
	time.Sleep(by)
	return err
}

// deafened is a backend that sends messages, and to which none arrive at first.
type deafened struct{ notifying }

func (d deafened) Receive(handle string, got func([]byte)) error {
	d.later = func() {
		d.notifying.Receive(handle, got)
		got(nil)
	}
	return errors.New("too many clients")
}

// TestPollingSends: a handle to which no messages arrive sends them all the same. When
// they arrive after all, it looks no more.
func TestPollingSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{table: newTable()}
		s, peer := open(t, deafened{notifying{b}}, nil), open(t, notifying{&backend{table: b.table}}, nil)
		if !s.Polls() {
			t.Error("it does not poll")
		}
		waits := func(of, other *kv.Store, name string, most time.Duration) {
			t.Helper()
			events, holder, waiter := hear(of), request(name, 1, false), request(name, 2, true)
			hold(t, other, holder)
			queue(t, of, waiter)
			time.Sleep(time.Second)
			other.Release(t.Context(), refOf(holder))
			time.Sleep(most)
			synctest.Wait()
			if got := events(); len(got) != 1 || got[0].ID != waiter.ID {
				t.Errorf("%s: got %+v, want one event", name, got)
			}
		}
		waits(peer, s, "from the handle that polls", 0)
		waits(s, peer, "to the handle that polls", time.Second)
		b.later()
		if s.Polls() {
			t.Error("it polls, though messages arrive")
		}
		waits(s, peer, "to the handle that polls no more", 0)
	})
}
