package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// together has f run for each of n numbers at once, while the calls of others are under way, and lets what they
// send go when all of it waits.
func together(t *testing.T, s *etcd.Store, n int, f func(i int)) {
	t.Helper()
	free := s.Occupy(time.Minute)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	locktest.Poll(t, "operations that wait", locktest.Patience, func() bool { return s.Waiting() == n })
	free()
	all.Wait()
}

// givesUpAndBuries has a waiter for a name that is locked leave its place, and another one be buried.
func givesUpAndBuries(t *testing.T, s *etcd.Store, name string) {
	t.Helper()
	for i, bury := range []bool{false, true} {
		r := newRequest(name, 1000+i)
		r.Queue = true
		locktest.Queue(t, s, r)
		ref := locktest.RefTo(r)
		ref.Bury = bury
		if err := s.Release(t.Context(), ref); err != nil {
			t.Errorf("bury %t: %v", bury, err)
		}
	}
	locktest.Queued(t, s, name, 0)
}

// Requests of one moment for different names share calls, whatever limit of operations the server has.
func TestRequestsTravelTogether(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--max-txn-ops=8"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			const n = 100
			s, calls := counted(t, etcdtest.Start(t, 1, flags...))
			if _, err := s.Acquire(t.Context(), newRequest("makes the lease", n)); err != nil {
				t.Fatal(err)
			}
			calls.take()
			atMost := 2
			if flags != nil {
				atMost = n + 20 // calls that are refused until it is known how many operations the server takes
			}
			together(t, s, n, func(i int) {
				r := newRequest(fmt.Sprint(i), i)
				if g, err := s.Acquire(t.Context(), r); err != nil || !g.Held {
					t.Errorf("%d: %+v, %v", i, g, err)
				}
			})
			if took := calls.take()["Txn"]; took > atMost {
				t.Errorf("%d acquires took %d calls, want %d at most", n, took, atMost)
			}
			for i := range n {
				if state, err := s.Inspect(t.Context(), fmt.Sprint(i)); err != nil || len(state.Holders) != 1 {
					t.Fatalf("%d: %+v, %v", i, state, err)
				}
			}
			calls.take()
			together(t, s, n, func(i int) {
				if err := s.Release(t.Context(), locktest.RefTo(newRequest(fmt.Sprint(i), i))); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
			if took := calls.take()["Txn"]; took > atMost {
				t.Errorf("%d releases took %d calls, want %d at most", n, took, atMost)
			}
			if names, err := s.List(t.Context()); err != nil || len(names) != 1 {
				t.Errorf("%d names are left, %v", len(names), err)
			}
			givesUpAndBuries(t, s, "makes the lease")
		})
	}
}

// A request that is refused does not take those with it that travel in the same call.
func TestRefusedAloneThoughTogether(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	s, _ := counted(t, c)
	holder := open(t, c.URL())
	if _, err := holder.Acquire(t.Context(), newRequest("2", 99)); err != nil {
		t.Fatal(err)
	}
	if err := holder.Release(t.Context(), store.Ref{Name: "3", Owner: newRequest("3", 3).Owner, ID: newRequest("3", 3).ID, TTL: time.Minute, Bury: true}); !errors.Is(err, store.ErrLost) {
		t.Fatal(err)
	}
	if _, err := c.Client(t).Put(t.Context(), etcd.DirOf("4")+"foreign", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), newRequest("makes the lease", 98)); err != nil {
		t.Fatal(err)
	}
	want := []error{nil, nil, store.ErrHeld, store.ErrLost, store.ErrForeignKey, nil}
	together(t, s, len(want), func(i int) {
		if _, err := s.Acquire(t.Context(), newRequest(fmt.Sprint(i), i)); !errors.Is(err, want[i]) {
			t.Errorf("%d: %v, want %v", i, err, want[i])
		}
	})
}

// A request does not wait for long for calls that are not answered, nor for one of its own name.
func TestRequestsDoNotWaitForStuckCalls(t *testing.T) {
	t.Parallel()
	s, _ := counted(t, etcdtest.Start(t, 1))
	if _, err := s.Acquire(t.Context(), newRequest("makes the lease", 98)); err != nil {
		t.Fatal(err)
	}
	free := s.Occupy(time.Millisecond)
	defer free()
	locktest.Hold(t, s, newRequest("impatient", 1))
	s.Occupy(time.Minute)()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, newRequest("a", 2))
		got <- err
	}()
	locktest.Poll(t, "an operation that waits", locktest.Patience, func() bool { return s.Waiting() == 1 })
	locktest.Hold(t, s, newRequest("a", 3))
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("a request whose caller has gone: %v", err)
	}
	if s.Waiting() != 0 {
		t.Error("its operation waits still")
	}
}

// Close ends a request that waits for others' calls.
func TestFault72RequestsWaitAtClose(t *testing.T) {
	t.Parallel()
	s, _ := counted(t, etcdtest.Start(t, 1))
	if _, err := s.Acquire(t.Context(), newRequest("makes the lease", 98)); err != nil {
		t.Fatal(err)
	}
	free := s.Occupy(time.Hour)
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), newRequest("a", 1))
		got <- err
	}()
	locktest.Poll(t, "an operation that waits", locktest.Patience, func() bool { return s.Waiting() == 1 })
	s.Close()
	if err := <-got; !errors.Is(err, store.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	free()
}

// The requests of one moment are larger together than a message may be, as names are long. Each is sent alone.
func TestLongNamesDoNotTravelTogether(t *testing.T) {
	t.Parallel()
	const n = 64
	c := etcdtest.Start(t, 1)
	s, _ := counted(t, c)
	holder := open(t, c.URL())
	request := func(i, id int) store.Request {
		r := newRequest(strings.Repeat("\xff", 1020)+fmt.Sprint(i), id)
		r.Queue, r.WaitTTL = true, time.Minute
		return r
	}
	for i := range n {
		locktest.Hold(t, holder, request(i, i))
		locktest.Queue(t, s, request(i, n+i)) // so that the next request has the transaction that takes a place
	}
	together(t, s, n, func(i int) {
		if g, err := s.Acquire(t.Context(), request(i, 2*n+i)); err != nil || g.Position != 2 {
			t.Errorf("%d: %+v, %v", i, g, err)
		}
	})
}
