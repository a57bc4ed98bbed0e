package quorum_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

// ahead has node i issue greater tokens than the others.
func (s *site) ahead(i int) {
	s.t.Helper()
	r := request("z", 1)
	r.Name, r.Tokens = "other", 1000
	if _, err := s.nodes[i].Acquire(bg, r); err != nil {
		s.t.Fatal(err)
	}
}

// unequal holds the lock, with a token that nodes 0 and 1 have agreed on; node 2, which
// was late, gave it a greater one.
func (s *site) unequal() (a *client, token uint64) {
	s.t.Helper()
	s.ahead(2)
	a = s.client()
	off := a.links[2].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(time.Second))
	token = s.hold(a, request("a", 1)).Token
	off()
	time.Sleep(2 * time.Second)
	want(s.t, "holders at node 2", s.holders(2), "a")
	return a, token
}

// TestTokenOfReentry: an owner that takes a lock again is given the token of its hold, also where a node that was
// late has a greater one, and one of those that have agreed on it fails.
func TestTokenOfReentry(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut": faultstore.DropReply(), "cut before": faultstore.DropRequest(), "silent": faultstore.MuteReply(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a, token := s.unequal()
				a.links[0].On(faultstore.Acquire, faultstore.Every, fault)
				g := s.hold(a, request("a", 2))
				want(t, "token", g.Token, token)
				want(t, "holds", g.Holds, 2)
			})
		})
	}
}

// TestTokenOfReentryWithoutAMajority: where fewer nodes than a majority say that they know the hold, the re-entry
// gets a greater token: the hold may be lost, and another owner may have had a token since.
func TestTokenOfReentryWithoutAMajority(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		token := s.hold(a, request("a", 1)).Token
		for _, n := range s.nodes[:2] {
			n.Break(bg, "n")
		}
		b.cut(down, 2)
		other := s.hold(b, request("b", 1)).Token
		s.release(b, request("b", 1))
		if g := s.hold(a, request("a", 2)); g.Token <= other || other <= token {
			t.Errorf("tokens %d, %d and then %d", token, other, g.Token)
		}
	})
}

// TestTokenAfterALateRelease: a node that has not released an earlier hold of the owner answers with its token. The new
// hold gets a greater one.
func TestTokenAfterALateRelease(t *testing.T) {
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			s.ahead(0)
			first := request("a", 1)
			first.Mode, first.Tokens = mode, 50
			token := s.hold(a, first).Token
			off := a.links[0].On(faultstore.Release, faultstore.Every, down)
			s.release(a, first)
			second := request("a", 2)
			second.Mode = mode
			a.cut(down, 2)
			if g := s.hold(a, second); g.Token < token+50 {
				t.Errorf("%v: token %d after %d to %d", mode, g.Token, token, token+49)
			}
			off()
		})
	}
}
