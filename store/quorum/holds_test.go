package quorum_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

// TestHoldsOfNodesThatMissedSomething: an ask or a release that a minority of the nodes
// has not got yet does not make the number of the owner's holds wrong.
func TestHoldsOfNodesThatMissedSomething(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		hold := func(id, holds, off int) {
			t.Helper()
			heal := a.cut(down, off)
			want(t, "holds", s.hold(a, request("a", id)).Holds, holds)
			heal()
		}
		hold(1, 1, 0)
		hold(2, 2, 0)
		hold(3, 3, 1) // nodes 0 and 2 vote, and node 0 has this one alone
		hold(3, 3, 2)

		heal := a.links[2].On(faultstore.Release, faultstore.Every, down)
		s.release(a, request("a", 2))
		hold(4, 3, 1) // node 2, which votes, has not got the release
		heal()
	})
}

// TestHandlesAreApart: an owner is one of its handle, and so is an id. Another handle neither re-enters nor
// repeats, renews or releases.
func TestHandlesAreApart(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		r := request("a", 1)
		s.hold(b, r)
		s.refused(a, request("a", 2), store.ErrHeld)
		s.refused(a, r, store.ErrHeld)
		if err := s.renew(a, r); !errors.Is(err, store.ErrLost) {
			t.Errorf("renewal through another handle: got %v", err)
		}
		if err := a.Release(bg, refOf(r)); !errors.Is(err, store.ErrLost) {
			t.Errorf("release through another handle: got %v", err)
		}
		if err := s.renew(b, r); err != nil {
			t.Errorf("renewal through its own handle: got %v", err)
		}
	})
}

// TestHoldsThatWereBroken: those that no node has any more do not count, though this
// handle has not been told.
func TestHoldsThatWereBroken(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		for id := range 3 {
			s.hold(a, request("a", id))
		}
		for _, n := range s.nodes {
			n.Break(bg, "n")
		}
		heal := a.cut(down, 0)
		s.hold(a, request("a", 4))
		heal()
		a.cut(down, 1)
		want(t, "holds", s.hold(a, request("a", 5)).Holds, 2)
	})
}
