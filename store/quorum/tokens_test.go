package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
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
func (s *site) unequal() (token uint64) {
	s.t.Helper()
	s.ahead(2)
	a := s.client()
	a.links[2].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(time.Second))
	token = s.hold(a, request("a", 1)).Token
	time.Sleep(2 * time.Second)
	want(s.t, "holders at node 2", s.holders(2), "a")
	return token
}

// TestTokenOfReentry: who takes a lock again through another handle is given the token
// that his hold has, also where a node that was late has another one, greater, and one
// of those that have agreed on it fails at first.
func TestTokenOfReentry(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut": faultstore.DropReply(), "cut before": faultstore.DropRequest(), "silent": faultstore.MuteReply(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				token, b := s.unequal(), s.client()
				b.links[0].On(faultstore.Acquire, faultstore.Nth(1), fault)
				g := s.hold(b, request("a", 2))
				want(t, "token", g.Token, token)
				want(t, "holds", g.Holds, 2)
			})
		})
	}
}

// TestTokenOfReentryWithoutANode: if it does not come back, the hold gets a greater one.
func TestTokenOfReentryWithoutANode(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		token, b := s.unequal(), s.client()
		b.cut(down, 0)
		if g := s.hold(b, request("a", 2)); g.Token <= token {
			t.Errorf("token %d after %d", g.Token, token)
		}
		want(t, "asks", b.links[1].Count(faultstore.Acquire), 2)
	})
}

// TestTokenOfReentryInShortTime: nobody is asked again where the call would end first.
func TestTokenOfReentryInShortTime(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.unequal()
		b := s.client()
		b.cut(faultstore.Mute(), 0) // for half a second each time
		ctx, cancel := context.WithTimeout(bg, 1900*time.Millisecond)
		defer cancel()
		if g, err := b.Acquire(ctx, request("a", 2)); err != nil || !g.Held {
			t.Errorf("got %+v, %v", g, err)
		}
		want(t, "asks", b.links[1].Count(faultstore.Acquire), 1)
	})
}
