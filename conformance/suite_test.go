package conformance

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// TestMemory: the reference passes as a server does, shared by all cases in real
// time, so many at once as there should be, and nothing of them is left on it.
func TestMemory(t *testing.T) {
	lonely := make(map[string]bool)
	for _, c := range allCases() {
		lonely[t.Name()+"/"+strings.ReplaceAll(c.name, " ", "_")] = c.needs.has(alone)
	}
	const atOnce = 12
	server := memory.New()
	var mu sync.Mutex
	running, most := make(map[string]bool), 0
	RunSuite(t, Suite{
		New: func(t testing.TB) store.Store {
			mu.Lock()
			defer mu.Unlock()
			running[t.Name()] = true
			most = max(most, len(running))
			if len(running) > 2 && lonely[t.Name()] {
				t.Errorf("not alone: %d cases at once", len(running)-1)
			}
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				delete(running, t.Name())
			})
			return server.Peer()
		},
		TTL:      100 * time.Millisecond,
		Parallel: atOnce,
	})
	delete(running, t.Name()) // which had a look at the store's abilities
	if len(running) > 0 {
		t.Errorf("%d cases go on after RunSuite has returned", len(running))
	}
	if most < 3 || most > 1+atOnce {
		t.Errorf("%d cases at once, want %d", most-1, atOnce)
	}
	if names, err := server.List(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("left behind: %q, %v", names, err)
	}
}

// TestMemoryInBubble: all of it takes no time in a bubble.
func TestMemoryInBubble(t *testing.T) {
	RunSuite(t, Suite{New: func(testing.TB) store.Store { return memory.New() }, Bubble: true})
}

// TestOwnClock: a store with a clock of its own is not waited for.
func TestOwnClock(t *testing.T) {
	var moved atomic.Int64
	RunSuite(t, Suite{
		New: func(testing.TB) store.Store {
			h := newModel("")
			h.moved = &moved
			return h
		},
		TTL:      time.Minute,
		Sleep:    func(d time.Duration) { moved.Add(int64(d)) },
		Parallel: 1,
	})
}

// TestUnfair: a store that keeps no order passes if it says so.
func TestUnfair(t *testing.T) {
	s := modelSuite("barging")
	s.Unfair = true
	RunSuite(t, s)
}

// TestApart: a store whose handles know their own owners only passes if it says so.
func TestApart(t *testing.T) {
	s := modelSuite("owners belong to one handle")
	s.Apart = true
	RunSuite(t, s)
}

// TestReport: a failure says what was called, what came, what should have
// come, why, and what had happened before.
func TestReport(t *testing.T) {
	got := runOne(t, modelSuite("ids are shown whole"), "inspect/shows no whole id").report
	for _, want := range []string{
		"inspect/shows no whole id\n", "call: ", "got: ", "want: ", "contract: " + saysShort, "trace of ",
		"Acquire(A-", " id=000001 exclusive TTL=", " -> held: token=1 ", "Inspect(", " -> holders [A-",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("report lacks %q:\n%s", want, got)
		}
	}
}

// TestDeadline: a store that ignores its ctx fails the case; it does not hang it.
func TestDeadline(t *testing.T) {
	for name, bubble := range map[string]bool{"bubble": true, "real time": false} {
		t.Run(name, func(t *testing.T) {
			s := Suite{
				New:      func(testing.TB) store.Store { return deaf{memory.New()} },
				Bubble:   bubble,
				Deadline: time.Second,
			}
			got := runOne(t, s, "inspect/last token").report
			if !strings.Contains(got, "not finished after 1s") || !strings.Contains(got, "(no result yet)") {
				t.Errorf("got report:\n%s", got)
			}
		})
	}
}

// deaf never answers Inspect.
type deaf struct{ *memory.Store }

func (d deaf) Inspect(context.Context, string) (store.State, error) { select {} }

// TestWrapperWithoutAnAbility: it says so, and that is no failure.
func TestWrapperWithoutAnAbility(t *testing.T) {
	s := Suite{Bubble: true, New: func(testing.TB) store.Store { return wrapper{memory.New()} }}
	for _, name := range []string{"abilities/Break frees", "abilities/List names in use", "contract/calls after Close"} {
		if got := runOne(t, s, name); got.report != "" {
			t.Errorf("%s: got report:\n%s", name, got.report)
		}
	}
}

// wrapper is a store that wraps one which breaks and lists nothing.
type wrapper struct{ *memory.Store }

func (wrapper) Break(context.Context, string) (int, error) { return 0, store.ErrUnsupported }
func (wrapper) List(context.Context) ([]string, error)     { return nil, store.ErrUnsupported }

// TestPanicOnAnotherGoroutine: a store that panics in a call of a goroutine of the case fails the case. It does not
// end the program.
func TestPanicOnAnotherGoroutine(t *testing.T) {
	s := Suite{
		Bubble: true,
		New:    func(testing.TB) store.Store { return panicking{memory.New(), new(atomic.Bool)} },
		Stall: func(_ testing.TB, s store.Store) (resume func()) {
			s.(panicking).stalled.Store(true)
			return func() { s.(panicking).stalled.Store(false) }
		},
	}
	if got := runOne(t, s, "stall/ctx is obeyed").report; !strings.Contains(got, "panic: stalled") {
		t.Errorf("got report:\n%s", got)
	}
}

// panicking panics in Inspect while it is stalled.
type panicking struct {
	*memory.Store
	stalled *atomic.Bool
}

func (p panicking) Inspect(ctx context.Context, name string) (store.State, error) {
	if p.stalled.Load() {
		panic("stalled")
	}
	return p.Store.Inspect(ctx, name)
}

// TestSlowMachine: where calls take so long that leases end on their way, the
// case is repeated with longer ones, and says so if that does not help.
func TestSlowMachine(t *testing.T) {
	for _, test := range []struct {
		name       string
		ttl, delay time.Duration
		want       string
	}{
		{"promotion/renewed to its TTL", 40 * time.Millisecond, 60 * time.Millisecond, ""},
		{"promotion/renewed to its TTL", 10 * time.Millisecond, 200 * time.Millisecond, "too slow to tell"},
		{"place/outlasts hold and head", 40 * time.Millisecond, 70 * time.Millisecond, ""},
		{"promotion/outlasts the places behind it", 40 * time.Millisecond, 120 * time.Millisecond, ""},
		{"renew/only its own reader", 40 * time.Millisecond, 30 * time.Millisecond, ""},
	} {
		s := Suite{
			New: func(testing.TB) store.Store { return slow{memory.New(), test.delay} },
			TTL: test.ttl,
		}
		got := runOne(t, s, test.name).report
		if got == "" != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s, calls that take %v: got %q, want %q", test.name, test.delay, got, test.want)
		}
	}
}

// slow answers late: the lease has been running for a while then.
type slow struct {
	*memory.Store
	delay time.Duration
}

func (s slow) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	defer time.Sleep(s.delay)
	return s.Store.Acquire(ctx, req)
}

// TestSkips: what cannot be run says why, before any bubble.
func TestSkips(t *testing.T) {
	type plain struct{ store.Store }
	s := Suite{New: func(testing.TB) store.Store { return plain{memory.New()} }, Unfair: true, Except: map[string]string{"renew/thousands": "too many"}}
	p := s.plan(t)
	for name, want := range map[string]string{
		"renew/thousands":            "stated exception: too many",
		"queue/writers in order":     "unfair",
		"abilities/Break frees":      "no store.Breaker",
		"abilities/List the living":  "no store.Lister",
		"handles/close leaves holds": "Peer",
		"input/foreign key":          "Plant",
		"acquire/answer":             "",
	} {
		got := p.skips(named(t, name))
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestNewSkips: a New that skips inside a bubble must not look like a pass.
func TestNewSkips(t *testing.T) {
	var calls int
	s := Suite{Bubble: true, New: func(t testing.TB) store.Store {
		if calls++; calls > 1 {
			t.Skip("no server")
		}
		return memory.New()
	}}
	if got := runOne(t, s, "acquire/answer"); got.skipped == "" || got.report != "" {
		t.Errorf("got %+v, want it skipped", got)
	}
}

func runOne(t *testing.T, s Suite, name string) outcome {
	t.Helper()
	return s.plan(t).run(t, named(t, name))
}

func named(t *testing.T, name string) testCase {
	t.Helper()
	for _, c := range allCases() {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("there is no case %q", name)
	return testCase{}
}
