package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

func newStore(testing.TB) store.Store { return memory.New() }

// request is an exclusive request of an owner and id that n stands for.
func request(name string, n int, ttl time.Duration) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%032x", n),
		TTL: ttl, WaitTTL: ttl, Tokens: 1,
	}
}

// TestStartsNoGoroutine: not for handles, holds, waiters or events.
func TestStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		s := memory.New()
		peer := s.Peer()
		stop := peer.Listen(func(store.Event) {})
		holder, waiter := request("n", 1, time.Minute), request("n", 2, time.Minute)
		waiter.Queue = true
		s.Acquire(t.Context(), holder)
		peer.Acquire(t.Context(), waiter)
		s.Renew(t.Context(), []store.Ref{locktest.RefTo(holder)})
		s.Release(t.Context(), locktest.RefTo(holder))
		if n := runtime.NumGoroutine() - before; n > 0 {
			t.Errorf("%d goroutines started", n)
		}
		stop()
		s.Close()
	})
}

// heap is what is in use after collecting.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// grown is how far the heap is above before, in MiB.
func grown(before uint64) float64 { return (float64(heap()) - float64(before)) / (1 << 20) }

// TestNamesUsedOnce: a million of them, released, leave the heap where it was;
// under the race detector, which is slow, a tenth of that.
func TestNamesUsedOnce(t *testing.T) {
	s := memory.New()
	defer runtime.KeepAlive(s)
	before := heap()
	names := 1_000_000
	if underRace {
		names /= 10
	}
	req := request("", 1, time.Hour)
	for i := range names {
		req.Name = "name-" + strconv.Itoa(i)
		if g, err := s.Acquire(t.Context(), req); err != nil || !g.Held {
			t.Fatalf("Acquire: got %+v, %v", g, err)
		}
		if err := s.Release(t.Context(), locktest.RefTo(req)); err != nil {
			t.Fatalf("Release: got %v", err)
		}
	}
	if mb := grown(before); mb > 1 {
		t.Errorf("the heap has grown by %.1f MiB", mb)
	}
}

// TestNamesOfTheDead: holds that are never released do not pile up, though
// nobody asks for their names again.
func TestNamesOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		defer runtime.KeepAlive(s)
		before := heap()
		// A thousand names live at any one time.
		for i := range 40_000 {
			req := request(fmt.Sprintf("name-%d", i), 1, time.Second)
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if i%4 == 0 { // what is buried goes with the rest
				ref := locktest.RefTo(req)
				ref.Bury = true
				s.Release(t.Context(), ref)
			}
			time.Sleep(time.Millisecond)
		}
		if mb := grown(before); mb > 4 {
			t.Errorf("the heap has grown by %.1f MiB", mb)
		}
		time.Sleep(time.Minute)
		if names, err := s.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("List: got %d names, %v, want none", len(names), err)
		}
	})
}

// TestClosedHandle: every call after Close says so, and its peers go on.
func TestClosedHandle(t *testing.T) {
	s := memory.New()
	peer := s.Peer()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Listen(func(store.Event) { t.Error("an event at a closed handle") })()
	for call, err := range calls(t.Context(), s) {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", call, err)
		}
	}
	for call, err := range calls(t.Context(), peer) {
		if errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a peer: got %v", call, err)
		}
	}
}

// TestEndedContext: nothing is done for a ctx that is over.
func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := memory.New()
	for call, err := range calls(ctx, s) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", call, err)
		}
	}
	if names, _ := s.List(t.Context()); len(names) != 0 {
		t.Errorf("in use: %q", names)
	}
}

// calls makes each call once and returns the errors.
func calls(ctx context.Context, s *memory.Store) map[string]error {
	req := request("n", 1, time.Minute)
	errs := make(map[string]error)
	_, errs["Acquire"] = s.Acquire(ctx, req)
	errs["Renew"] = s.Renew(ctx, []store.Ref{locktest.RefTo(req)})[0]
	_, errs["Inspect"] = s.Inspect(ctx, "n")
	_, errs["List"] = s.List(ctx)
	errs["Release"] = s.Release(ctx, locktest.RefTo(req))
	_, errs["Break"] = s.Break(ctx, "n")
	return errs
}

// TestSinkMayCall: sinks run while no lock of the store is held, so one that
// calls the store, against the advice, does not block it.
func TestSinkMayCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var once sync.Once
		woken := make(chan store.Grant, 1)
		holder, waiter := request("n", 1, time.Minute), request("n", 2, time.Minute)
		waiter.Queue = true
		s.Listen(func(e store.Event) {
			once.Do(func() {
				g, _ := s.Acquire(t.Context(), waiter)
				s.Listen(func(store.Event) {})()
				woken <- g
			})
		})
		s.Acquire(t.Context(), holder)
		s.Acquire(t.Context(), waiter)
		s.Release(t.Context(), locktest.RefTo(holder))
		if g := <-woken; !g.Held {
			t.Errorf("in the sink: got %+v, want it held", g)
		}
	})
}

// TestRetryIsCapped: however long the queue, the last waiter asks not much
// later than the first.
func TestRetryIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		s.Acquire(t.Context(), request("n", 0, time.Minute))
		for i := 1; i <= 100; i++ {
			req := request("n", i, time.Minute)
			req.Queue = true
			if g, err := s.Acquire(t.Context(), req); err != nil || g.Retry < time.Minute || g.Retry > time.Minute+40*time.Millisecond {
				t.Errorf("waiter %d: got %+v, %v", i, g, err)
			}
		}
	})
}

func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { locktest.TellsAges(t, memory.New(), "n") })
}
