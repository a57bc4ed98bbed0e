// Package conformance judges whether a store keeps the contract of package
// store. It is for authors of stores; one line of a test runs all of it:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB) store.Store { return mystore.New() })
//	}
//
// Every case is a subtest named topic/case and checks one sentence of the
// contract. A failure prints the call, what it gave, what it should have
// given, that sentence, and the trace of all calls and events of the case.
// No case hangs: each has a deadline, also against a store that ignores its
// context.
//
// Cases are independent and leave nothing behind, so a store may be a server
// that others use as well. Names are random, except in the few cases that are
// about names; those fail while another run of the suite is in the same place
// of the same server.
//
// Cases run side by side, since outside a bubble they mostly wait for leases to
// end. The few that others could disturb, since all names of the store matter in
// them, come last, one by one.
package conformance

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Suite says how to run the cases. Only New is required; the zero value of
// every other field means what its comment states.
type Suite struct {
	// New returns a handle on a store for one case, and one for a look at the
	// store's abilities before the first. The handles may or may not share
	// locks. The suite closes them; t.Cleanup is for what New itself started.
	// A New that skips t, for want of a server say, skips the whole suite.
	// It is called from several goroutines unless Parallel is 1.
	New func(t testing.TB) store.Store

	// Peer returns another handle on the locks of s, such as another process
	// has. Nil: a method Peer of s that takes nothing and returns a store. If
	// there is none, the store is its own peer, and cases in which that proves
	// nothing are skipped.
	Peer func(t testing.TB, s store.Store) store.Store

	// TTL is the lease that cases wait for, up to six times in a row. Zero: ten
	// seconds in a bubble and 200 ms outside, or MinTTL if that is longer.
	// Choose one well above the time that ten calls take; where a machine was
	// too slow to tell, the case is repeated with twice the lease.
	TTL time.Duration

	// Lag is how much later than asked the store may end a lease. Zero: a
	// bubble admits none; outside, a quarter of the TTL.
	Lag time.Duration

	// Sleep lets time pass for the store. Nil: time.Sleep. For a store with a
	// clock of its own it moves that clock; if stores share the clock, cases
	// must not run at the same time: set Parallel to 1.
	Sleep func(d time.Duration)

	// Bubble runs each case in a testing/synctest bubble: waiting costs
	// nothing and times are exact. It is for stores without network.
	Bubble bool

	// Deadline bounds each case, and its clean-up, on the clock that the case
	// sees. Zero: 15 seconds and 50 times the TTL. In a bubble, real time is
	// bounded by 20 seconds as well.
	Deadline time.Duration

	// Plant puts something foreign where the lock of name would be. Nil: the
	// cases about foreign keys are skipped.
	Plant func(t testing.TB, s store.Store, name string)

	// Stall makes the store's data out of reach for the calls of s until resume is
	// called: it locks the table, stops the server, fills the link. That is so for the
	// calls of optional abilities too, but for Incarnation. Calls that were
	// made meanwhile may go on after that. Nil: the cases about calls that have to
	// wait are skipped.
	Stall func(t testing.TB, s store.Store) (resume func())

	// Footprint counts what the store keeps for all names together: keys, rows,
	// files, records, not counting what is there once for the whole store. Nil: the
	// cases about what lasts are skipped.
	Footprint func(s store.Store) int

	// Unfair is a stated lack: requests that wait have no common order, such as
	// when independent servers vote. Queue, promotion and events are not
	// checked then.
	Unfair bool

	// Apart is a stated lack: owners and ids belong to one handle, such as when a handle
	// has a memory of its requests. An owner that asks through another handle is another
	// owner there, and an id is released only through its own handle. Re-entry and release
	// through another handle are not checked then.
	Apart bool

	// Parallel is how many cases run at the same time, each with one handle or
	// two. Zero: 16, for they mostly wait. The flag -parallel of go test does not
	// count them; by default it is the number of processors.
	Parallel int

	// Except names cases that the store is known not to pass, each with the
	// reason, with which it is reported as skipped. A name that is no case's
	// fails the suite.
	Except map[string]string
}

// Run checks the stores that newStore returns against all cases with the zero
// Suite, outside any bubble, each in a subtest of t, and returns when all have
// ended. It does not stop at the first failure.
func Run(t *testing.T, newStore func(t testing.TB) store.Store) {
	t.Helper()
	RunSuite(t, Suite{New: newStore})
}

// RunSuite is Run for stores that need something other than the zero Suite.
func RunSuite(t *testing.T, s Suite) {
	t.Helper()
	p := s.plan(t)
	for _, name := range slices.Sorted(maps.Keys(s.Except)) {
		if !slices.ContainsFunc(allCases(), func(c testCase) bool { return c.name == name }) {
			t.Errorf("Suite.Except: there is no case %q", name)
		}
	}
	var together, apart []testCase
	for _, c := range allCases() {
		if c.needs.has(alone) {
			apart = append(apart, c)
		} else {
			together = append(together, c)
		}
	}
	p.runAll(t, together, p.Parallel)
	p.runAll(t, apart, 1)
	p.summary(t)
}

// plan is a Suite with its zero values resolved and the store's abilities known.
type plan struct {
	Suite
	breaker, lister    bool
	raiser, incarnator bool
	voter              bool
	quick              bool // fewer rounds in the cases that repeat; for many runs of the suite
	verdicts           verdicts
}

// plan looks at one store, outside any bubble.
func (s Suite) plan(t testing.TB) *plan {
	t.Helper()
	if s.New == nil {
		t.Fatal("conformance: Suite.New is nil")
	}
	probe := s.New(t)
	if probe == nil {
		t.Fatal("conformance: Suite.New returned nil")
	}
	p := &plan{Suite: s}
	_, p.breaker = probe.(store.Breaker)
	_, p.lister = probe.(store.Lister)
	_, p.raiser = probe.(store.TokenRaiser)
	_, p.incarnator = probe.(store.Incarnator)
	_, p.voter = probe.(store.Voter)
	if p.Peer == nil && peerOf(probe) != nil {
		p.Peer = func(_ testing.TB, s store.Store) store.Store { return peerOf(s)() }
	}
	if p.Parallel < 0 {
		t.Fatalf("conformance: Suite.Parallel is %d, want 0 or more", p.Parallel)
	}
	if p.Parallel == 0 {
		p.Parallel = 16
	}
	if p.TTL == 0 {
		p.TTL = 200 * time.Millisecond
		if p.Bubble {
			p.TTL = 10 * time.Second
		}
		p.TTL = max(p.TTL, probe.MinTTL())
	}
	if p.TTL < probe.MinTTL() {
		t.Fatalf("conformance: Suite.TTL is %v, the store's MinTTL %v", p.TTL, probe.MinTTL())
	}
	if p.Sleep == nil {
		p.Sleep = time.Sleep
	}
	if err := probe.Close(); err != nil {
		t.Errorf("Close of an unused store: got %v, want nil", err)
	}
	return p
}

// peerOf finds a method Peer whatever store it returns. An interface could
// name one result type only, and stores return their own.
func peerOf(s store.Store) func() store.Store {
	m := reflect.ValueOf(s).MethodByName("Peer")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 ||
		!m.Type().Out(0).Implements(reflect.TypeFor[store.Store]()) {
		return nil
	}
	return func() store.Store { return m.Call(nil)[0].Interface().(store.Store) }
}

// skips says why a case cannot be run; empty: it can.
func (p *plan) skips(c testCase) string {
	switch {
	case p.Except[c.name] != "":
		return "stated exception: " + p.Except[c.name]
	case c.needs.has(fair) && p.Unfair:
		return "the store is stated to be unfair: it keeps no order among waiters"
	case c.needs.has(common) && p.Apart:
		return "the store is stated to keep handles apart: owners and ids belong to one handle"
	case c.needs.has(twoHandles) && p.Peer == nil:
		return "needs two handles on the same locks: no Suite.Peer, and the store has no method Peer"
	case c.needs.has(breaker) && !p.breaker:
		return "the store is no store.Breaker"
	case c.needs.has(lister) && !p.lister:
		return "the store is no store.Lister"
	case c.needs.has(raiser) && !p.raiser:
		return "the store is no store.TokenRaiser"
	case c.needs.has(incarnator) && !p.incarnator:
		return "the store is no store.Incarnator"
	case c.needs.has(voter) && !p.voter:
		return "the store is no store.Voter"
	case c.needs.has(stall) && p.Stall == nil:
		return "no Suite.Stall to put the store's data out of reach"
	case c.needs.has(footprint) && p.Footprint == nil:
		return "no Suite.Footprint to count what the store keeps"
	case c.needs.has(plant) && p.Plant == nil:
		return "no Suite.Plant to put something foreign at a name"
	}
	return ""
}
