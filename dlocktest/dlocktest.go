// Package dlocktest is for tests of programs that use dlock. It has a client on a store in
// memory, faults to switch on, and a check that no lock is left held.
//
//	func TestReserve(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			client, store := dlocktest.New(t, nil)
//			store.Fail(1) // the next call of the store fails
//			...
//		})
//	}
//
// Inside a [testing/synctest] bubble leases, timeouts and outages take no real time. The
// package works outside of a bubble too; there they take as long as they say.
package dlocktest

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// New returns a client on an empty store in memory, and the store. With nil opts the
// client has dlock's defaults.
//
// When the test ends, New heals the store, waits for releases in the background, and closes
// the client. The test fails if the client still holds a lock by then. In a bubble that
// happens at the end of the bubble.
func New(t testing.TB, opts *dlock.Options) (*dlock.Client, *Store) {
	t.Helper()
	return open(t, memory.New(), opts)
}

// Peer returns another client on the same locks, and its store, as a second process would
// have them. Its faults are its own. Its end is checked as New says.
func (s *Store) Peer(t testing.TB, opts *dlock.Options) (*dlock.Client, *Store) {
	t.Helper()
	return open(t, s.memory.Peer(), opts)
}

func open(t testing.TB, m *memory.Store, opts *dlock.Options) (*dlock.Client, *Store) {
	t.Helper()
	s := newStore(t, m)
	client, err := dlock.New(s, opts)
	if err != nil {
		t.Fatalf("dlocktest: %v", err)
	}
	t.Cleanup(func() {
		s.Heal()
		for _, name := range s.stillHeld(client, opts) {
			t.Errorf("dlocktest: lock %q is still held at the end of the test: a hold was not unlocked", name)
		}
		if err := client.Close(); err != nil {
			t.Errorf("dlocktest: %v", err)
		}
	})
	return client, s
}

// stillHeld returns the names that the client holds when it has no call under way, or after 10 s and
// twice the StoreTimeout. A release that still runs is of a hold that the program has given back, and
// a call that was given up leads to one.
func (s *Store) stillHeld(client *dlock.Client, opts *dlock.Options) []string {
	limit := 10 * time.Second
	if opts != nil {
		limit += 2 * opts.StoreTimeout
	}
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		now := client.Stats() // before the names, so that a release that ended has taken its hold away
		names := s.heldNames()
		if len(names) == 0 || now.Releases+now.Calls == 0 || time.Now().After(end) {
			return names
		}
	}
}

// heldNames returns the names of the locks that are held through this store.
func (s *Store) heldNames() (names []string) {
	all, err := s.looks.List(context.Background())
	if err != nil {
		s.t.Errorf("dlocktest: %v", err)
	}
	for _, name := range all {
		for _, holder := range s.holders(name) {
			if s.granted(holder.ID) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

func (s *Store) holders(name string) []store.Entry {
	state, err := s.looks.Inspect(context.Background(), name)
	if err != nil {
		s.t.Errorf("dlocktest: %v", err)
	}
	return state.Holders
}
