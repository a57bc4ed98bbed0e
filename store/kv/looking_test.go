package kv_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// A handle without messages looks for a request until it is granted, refused, released,
// or its place has expired, and not longer.
func TestLookingEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s, peer *kv.Store, waiter store.Request){
		"released": func(t *testing.T, s, _ *kv.Store, waiter store.Request) { s.Release(t.Context(), refOf(waiter)) },
		"granted when it asks": func(t *testing.T, s, peer *kv.Store, waiter store.Request) {
			peer.Release(t.Context(), refOf(request("n", 1, false)))
			hold(t, s, waiter)
		},
		"refused": func(t *testing.T, s, peer *kv.Store, waiter store.Request) {
			ref := refOf(waiter)
			ref.Bury = true
			peer.Release(t.Context(), ref)
			if _, err := s.Acquire(t.Context(), waiter); !errors.Is(err, store.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
		},
		"expired":       func(*testing.T, *kv.Store, *kv.Store, store.Request) { time.Sleep(2*lease + time.Second) },
		"handle closed": func(_ *testing.T, s, _ *kv.Store, _ store.Request) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &strict{backend: backend{table: newTable()}}
				s, peer := open(t, b, nil), open(t, &backend{table: b.table}, nil)
				holder, waiter := request("n", 1, false), request("n", 2, true)
				holder.TTL = time.Hour
				if name != "expired" {
					waiter.WaitTTL = time.Hour
				}
				hold(t, s, holder)
				queue(t, s, waiter)
				end(t, s, peer, waiter)
				before := b.count()
				time.Sleep(10 * time.Minute)
				if n := b.count() - before; n > 0 {
					t.Errorf("%d looks for a request that does not wait", n)
				}
			})
		})
	}
}

// A request that certainly was not written is not looked for.
func TestLookingDoesNotBeginForWhatIsRefused(t *testing.T) {
	for name, refuse := range map[string]func(b *strict){
		"foreign value": func(b *strict) { b.values["n"] = []byte("no lock") },
		"no space":      func(b *strict) { b.before = func() error { return fmt.Errorf("%w: no space", store.ErrRefused) } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &strict{backend: backend{table: newTable()}}
				s := open(t, b, nil)
				defer s.Close()
				refuse(b)
				waiter := request("n", 2, true)
				waiter.WaitTTL = time.Hour
				if _, err := s.Acquire(t.Context(), waiter); !errors.Is(err, store.ErrRefused) && !errors.Is(err, store.ErrForeignKey) {
					t.Errorf("got %v, want a refusal", err)
				}
				before := b.count()
				time.Sleep(10 * time.Minute)
				if n := b.count() - before; n > 0 {
					t.Errorf("%d looks for a request that was refused", n)
				}
			})
		})
	}
}

// A waiter that goes on asking is looked for as long as it does. Asking again brings no look
// forward.
func TestLookingGoesOnWhileTheWaiterAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		s, peer := open(t, &backend{table: table}, nil), open(t, &backend{table: table}, nil)
		events := hear(s)
		holder := request("n", 1, false)
		holder.TTL = time.Hour
		hold(t, peer, holder)
		for range 20 {
			queue(t, s, request("n", 2, true))
			time.Sleep(lease - time.Second)
		}
		peer.Release(t.Context(), refOf(holder))
		time.Sleep(time.Second)
		if got := events(); len(got) != 1 || got[0] != (store.Event{ID: request("n", 2, true).ID, Token: 2}) {
			t.Errorf("got %+v, want the event", got)
		}
	})
}

// The time between two looks doubles up to MaxPoll.
func TestLooksBecomeRare(t *testing.T) {
	for _, test := range []struct {
		opts *kv.Options
		want []time.Duration
	}{
		{nil, []time.Duration{20, 40, 80, 160, 320, 640, 1000, 1000}},
		{&kv.Options{Poll: 100 * time.Millisecond, MaxPoll: 300 * time.Millisecond}, []time.Duration{100, 200, 300, 300}},
		{&kv.Options{Poll: 3 * time.Second}, []time.Duration{3000, 3000, 3000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &backend{table: newTable()}
			s, peer := open(t, b, test.opts), open(t, &backend{table: b.table}, nil)
			defer s.Close()
			var mu sync.Mutex
			var pauses []time.Duration
			var last time.Time
			b.before = func() error {
				mu.Lock()
				defer mu.Unlock()
				if !last.IsZero() { // else it is the request that is queued
					pauses = append(pauses, time.Since(last)/time.Millisecond)
				}
				last = time.Now()
				return nil
			}
			holder, waiter := request("n", 1, false), request("n", 2, true)
			holder.TTL, waiter.WaitTTL = time.Hour, time.Hour
			hold(t, peer, holder)
			queue(t, s, waiter)
			time.Sleep(20 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if len(pauses) < len(test.want) || !slices.Equal(pauses[:len(test.want)], test.want) {
				t.Errorf("%+v: looks after %v ms, want %v", test.opts, pauses, test.want)
			}
		})
	}
}

// One look has many waiters, of which one is soon due and another was just added.
func TestLookForTheOneThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &strict{backend: backend{table: newTable()}}
		s, peer := open(t, b, nil), open(t, &backend{table: b.table}, nil)
		defer s.Close()
		events := hear(s)
		for n, name := range []string{"old", "new"} {
			holder, waiter := request(name, n, false), request(name, n+10, true)
			holder.TTL, waiter.WaitTTL = time.Hour, time.Hour
			hold(t, peer, holder)
			queue(t, s, waiter)
			if name == "old" {
				time.Sleep(10 * time.Second) // its looks are a second apart by now
			}
		}
		peer.Release(t.Context(), refOf(request("new", 1, false)))
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := events(); len(got) != 1 || got[0].ID != request("new", 11, true).ID {
			t.Errorf("got %+v, want the event of the new one after its first pause", got)
		}
		if step := b.steps[len(b.steps)-1]; !slices.Equal(step, []string{"new"}) {
			t.Errorf("the look was for %v", step)
		}
	})
}

// sweeper is a backend that removes expired values at once.
type sweeper struct {
	backend
	sweeps int
}

func (s *sweeper) Sweep(context.Context) error { s.sweeps++; return nil }

// A sweep comes when as many records were created as the last one left, and not before 64.
func TestWhenASweepComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &sweeper{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		for n := 1; n <= 300; n++ {
			hold(t, s, request(fmt.Sprint(n), n, false))
			synctest.Wait()
			want := 0
			for _, at := range []int{64, 128, 256} {
				if n >= at {
					want++
				}
			}
			if b.sweeps != want {
				t.Fatalf("%d sweeps after %d names, want %d", b.sweeps, n, want)
			}
		}
		queue(t, s, request("1", 1000, true)) // no new name
		s.Created(256 - 44 - 1)
		synctest.Wait()
		if b.sweeps != 3 {
			t.Errorf("%d sweeps before the next one is due", b.sweeps)
		}
		s.Created(1)
		synctest.Wait()
		if b.sweeps != 4 {
			t.Errorf("%d sweeps after the backend made 256 names, want 4", b.sweeps)
		}
		s.Close()
		s.Created(1000)
		synctest.Wait()
		if b.sweeps != 4 {
			t.Error("a handle that is closed sweeps")
		}
	})
}

// Handles that make one name each, as short programs do, sweep as often as one that makes
// them all.
func TestShortHandlesSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &sweeper{backend: backend{table: newTable()}}
		for n := range 64 * 40 {
			s, err := kv.New(b, nil)
			if err != nil {
				t.Fatal(err)
			}
			hold(t, s, request(fmt.Sprint(n), n, false))
			synctest.Wait()
			s.Close()
		}
		if b.sweeps < 10 || b.sweeps > 100 {
			t.Errorf("%d sweeps for 2560 names, want about 40", b.sweeps)
		}
	})
}

// Without a Sweeper the expired records go, and those that live count for the next sweep.
func TestSweepCountsTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{table: newTable()}
		s := open(t, b, &kv.Options{Batch: 10})
		grant := func(from, to int) {
			for n := from; n < to; n++ {
				hold(t, s, request(fmt.Sprintf("%04d", n), n, false))
				synctest.Wait()
			}
		}
		grant(0, 128) // the second sweep left all of them
		time.Sleep(lease)
		grant(128, 255)
		if n := len(b.values); n != 255 {
			t.Fatalf("%d values before the third sweep is due, want 255", n)
		}
		grant(255, 256)
		if n := len(b.values); n != 128 {
			t.Fatalf("%d values after the third sweep, want the 128 that live", n)
		}
	})
}

// A handle that looks at free names makes no records, so it has nothing to sweep. A list
// removes what it finds expired.
func TestFreeNamesAreNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &sweeper{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		for n := range 200 {
			s.Inspect(t.Context(), fmt.Sprint(n))
		}
		synctest.Wait()
		if b.sweeps != 0 {
			t.Errorf("%d sweeps", b.sweeps)
		}
		hold(t, s, request("n", 1, false))
		time.Sleep(lease)
		if names, err := s.List(t.Context()); err != nil || len(names) > 0 || len(b.values) > 0 {
			t.Errorf("got %v, %v, with %d values left, want none", names, err, len(b.values))
		}
	})
}

// A place that is shorter than the clocks may differ is looked for, too.
func TestLookForAShortPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		s, peer := open(t, &backend{table: table}, nil), open(t, &backend{table: table}, nil)
		events := hear(s)
		holder, waiter := request("n", 1, false), request("n", 2, true)
		waiter.WaitTTL = 400 * time.Millisecond
		hold(t, peer, holder)
		queue(t, s, waiter)
		time.Sleep(100 * time.Millisecond)
		peer.Release(t.Context(), refOf(holder))
		time.Sleep(300 * time.Millisecond)
		if got := events(); len(got) != 1 || got[0].ID != waiter.ID {
			t.Errorf("got %+v, want the event", got)
		}
	})
}

// One goroutine looks for all waiters.
func TestOneGoroutineLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &backend{table: newTable()}, nil)
		defer s.Close()
		hold(t, s, request("n", 0, false))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for n := range 50 {
			queue(t, s, request("n", n%5+1, true))
		}
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; more > 5 {
			t.Errorf("%d goroutines more", more)
		}
	})
}

// A handle keeps nothing of a call that has ended: neither in itself nor in the caller's ctx.
func TestCallsLeaveNothing(t *testing.T) {
	s := open(t, &backend{table: newTable()}, nil)
	defer s.Close()
	measure := func() uint64 {
		for range 20_000 {
			s.Inspect(t.Context(), "n")
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	measure()
	before := measure()
	if after := measure(); after > before+500_000 {
		t.Errorf("%d bytes more after 20,000 calls", after-before)
	}
}

// A closed handle tells nothing.
func TestClosedHandleTellsNothing(t *testing.T) {
	b := &backend{table: newTable()}
	s := open(t, notifying{b}, nil)
	events := hear(s)
	s.Close()
	for _, got := range b.receivers {
		got(nil)
		got([]byte("id 1 0\n"))
	}
	late := hear(s)
	if got := append(events(), late()...); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

// After the last waiter the looking ends, and begins again with the next one.
func TestLookingBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		s, peer := open(t, &backend{table: table}, nil), open(t, &backend{table: table}, nil)
		events := hear(s)
		for n := range 3 {
			holder, waiter := request("n", 2*n, false), request("n", 2*n+1, true)
			hold(t, peer, holder)
			queue(t, s, waiter)
			peer.Release(t.Context(), refOf(holder))
			time.Sleep(time.Second)
			if got := events(); len(got) != 1 || got[0].ID != waiter.ID {
				t.Errorf("waiter %d: got %+v, want its event", n, got)
			}
			s.Release(t.Context(), refOf(waiter))
			time.Sleep(10 * time.Second)
		}
	})
}

// A waiter is granted by a look when the holder's lease has ended, though nobody calls.
func TestLookGrantsAfterADeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		s, peer := open(t, &backend{table: table}, nil), open(t, &backend{table: table}, nil)
		events := hear(s)
		hold(t, peer, request("n", 1, false))
		waiter := request("n", 2, true)
		waiter.WaitTTL = time.Minute
		queue(t, s, waiter)
		time.Sleep(lease + time.Second)
		if got := events(); len(got) != 1 || got[0] != (store.Event{ID: waiter.ID, Token: 2}) {
			t.Errorf("got %+v, want the event", got)
		}
	})
}

// A look that is repeated tells only what its last run found.
func TestRepeatedLookForgetsItsFirstRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &strict{backend: backend{table: newTable()}}
		s, peer := open(t, b, nil), open(t, &backend{table: b.table}, nil)
		defer s.Close()
		events := hear(s)
		holder, waiter := request("n", 1, false), request("n", 2, true)
		hold(t, peer, holder)
		queue(t, s, waiter)
		peer.Release(t.Context(), refOf(holder)) // the waiter is a hold now
		b.repeat(func() { peer.Break(t.Context(), "n") })
		time.Sleep(time.Second)
		if got := events(); len(got) > 0 {
			t.Errorf("got %+v, though the hold was broken before the look", got)
		}
	})
}
