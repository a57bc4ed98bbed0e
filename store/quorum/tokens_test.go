package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
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

// TestTokenOfAWaiterGrantedTogether: nodes grant all waiters of an owner at once, each with its own token. The
// hold of one is raised to the token of all nodes, and the others get that one too.
func TestTokenOfAWaiterGrantedTogether(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		for i, n := range s.nodes { // each node issues other tokens
			r := request("z", 1)
			r.Name, r.Tokens = "other", 1000*(i+1)
			if _, err := n.Acquire(bg, r); err != nil {
				t.Fatal(err)
			}
		}
		a, b := s.client(), s.client()
		s.hold(b, request("b", 1))
		writer, reader := waiting(request("a", 1)), waiting(shared(request("a", 2)))
		for _, r := range []store.Request{writer, reader} {
			if g, err := a.Acquire(bg, r); err != nil || g.Held {
				t.Fatalf("Acquire(%s): got %+v, %v, want it queued", r.ID, g, err)
			}
		}
		s.release(b, request("b", 1))
		token := s.hold(a, writer).Token
		want(t, "token of the reader", s.hold(a, reader).Token, token)
	})
}

// TestWaiterGrantedTogetherDoesNotWaitForDeadNodes: the nodes have granted a reader before the writer of the same owner,
// so none answers the reader with a token of the writer's hold. The dead ones cannot make a majority that does.
func TestWaiterGrantedTogetherDoesNotWaitForDeadNodes(t *testing.T) {
	inBubble(t, 5, func(s *site) {
		a, b := s.client(), s.client()
		a.cut(faultstore.Mute(), 3, 4)
		s.hold(b, request("b", 1))
		reader, writer := waiting(shared(request("a", 1))), waiting(request("a", 2))
		for _, r := range []store.Request{reader, writer} {
			if g, err := a.Acquire(bg, r); err != nil || g.Held {
				t.Fatalf("Acquire(%s): got %+v, %v, want it queued", r.ID, g, err)
			}
		}
		s.release(b, request("b", 1))
		token := s.hold(a, writer).Token
		began := time.Now()
		if g := s.hold(a, reader); g.Token <= token {
			t.Errorf("tokens %d of the writer and %d of the reader", token, g.Token)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the reader's grant took %v", took)
		}
	})
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

// own is a node that gives tokens of its own only, as a store may.
type own struct{ *memory.Store }

func (n own) Vote(ctx context.Context, req store.Request, _ uint64) (v store.Vote, err error) {
	if v.Grant, err = n.Acquire(ctx, req); err == nil && v.Grant.Held {
		v.Life, v.Age, v.Err = n.Incarnation(ctx)
	}
	return v, err
}

// TestTokenAfterALateRelease: a node that has not released an earlier hold of the owner answers with its token. The new
// hold gets a greater one.
func TestTokenAfterALateRelease(t *testing.T) {
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		inBubble(t, 3, func(s *site) {
			s.own = true
			a := s.client()
			s.ahead(0)
			first, second := request("a", 1), request("a", 2)
			first.Mode, first.Tokens, second.Mode = mode, 50, mode
			heal := a.cut(down, 2)
			token := s.hold(a, first).Token
			synctest.Wait()
			heal()
			off := a.links[0].On(faultstore.Release, faultstore.Every, down)
			s.release(a, first)
			heal = a.cut(down, 1)
			if g := s.hold(a, second); g.Token < token+50 || g.Holds != 1 {
				t.Errorf("%v: token %d, %d holds, after %d to %d", mode, g.Token, g.Holds, token, token+49)
			}
			off()
			heal()
		})
	}
}

// TestTokenAfterALostReentry: two nodes have not released an earlier hold of the owner. They give its token to the next
// one, in replies that are lost, and have released the earlier hold when they are asked again.
func TestTokenAfterALostReentry(t *testing.T) {
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		inBubble(t, 3, func(s *site) {
			s.own = true
			a := s.client()
			first, second := request("a", 1), request("a", 2)
			first.Mode, second.Mode = mode, mode
			token := s.hold(a, first).Token
			heal := a.fail(faultstore.Release, down, 0, 1)
			if err := a.Release(bg, refOf(first)); !errors.Is(err, quorum.ErrNoQuorum) {
				t.Fatalf("Release: got %v", err)
			}
			answer := a.fail(faultstore.Acquire, faultstore.DropReply(), 0, 1)
			s.refused(a, second, quorum.ErrNoQuorum)
			answer()
			heal()
			time.Sleep(time.Second)
			if g := s.hold(a, second); g.Token <= token || g.Holds != 1 {
				t.Errorf("%v: token %d, %d holds, after %d", mode, g.Token, g.Holds, token)
			}
			s.release(a, second)
		})
	}
}

// TestTokenOfAWaiterAfterARelease: nodes grant the writer and the reader of an owner together. The writer's token is
// raised, and the reader asks when the writer is released.
func TestTokenOfAWaiterAfterARelease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.own = true
		for i := range s.nodes {
			s.ahead(i)
		}
		s.ahead(2)
		a, b := s.client(), s.client()
		s.hold(b, request("b", 1))
		writer, reader := waiting(request("a", 1)), waiting(shared(request("a", 2)))
		for _, r := range []store.Request{writer, reader} {
			s.refused(a, r, nil)
		}
		s.release(b, request("b", 1))
		token := s.hold(a, writer).Token
		s.release(a, writer)
		if g := s.hold(a, reader); g.Token <= token {
			t.Errorf("token %d of the reader after %d of the writer", g.Token, token)
		}
		s.release(a, reader)
	})
}

// TestLateGrantGetsTheToken: a node that votes, or grants a place, after a majority has granted the hold with a greater
// token is given that token. So the majority may change without a lower token.
func TestLateGrantGetsTheToken(t *testing.T) {
	for name, x := range map[string]struct {
		queue bool
		late  func(s *site, a *client)
	}{
		"vote": {false, func(_ *site, a *client) {
			a.links[2].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(50*time.Millisecond))
		}},
		"place": {true, func(s *site, _ *client) {
			other := request("x", 1)
			s.nodes[2].Acquire(bg, other)
			time.AfterFunc(300*time.Millisecond, func() { s.nodes[2].Release(bg, refOf(other)) })
		}},
	} {
		for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, 3, func(s *site) {
					s.ahead(0) // so node 1 is given the token in a second round
					a := s.client()
					x.late(s, a)
					r := request("a", 1)
					r.Mode, r.Queue, r.Tokens = mode, x.queue, 10
					token := s.hold(a, r).Token
					time.Sleep(time.Second)
					want(t, "holders at node 2", s.holders(2), "a")
					state, _ := s.nodes[2].Inspect(bg, "n")
					if got := state.Holders[0].Token; got < token || state.Token < token+9 {
						t.Errorf("node 2 has token %d and has issued %d, want %d to %d reserved", got, state.Token, token, token+9)
					}
					s.release(a, r)
				})
			})
		}
	}
}

// TestTokenBesideAnUnreleasedHold: what nodes have of a hold whose release failed is not the hold that the handle still
// believes in. Other owners may have had greater tokens than that one.
func TestTokenBesideAnUnreleasedHold(t *testing.T) {
	for _, votes := range []bool{false, true} {
		inBubble(t, 3, func(s *site) {
			s.votes = votes
			a, b := s.client(), s.client()
			last := s.hold(a, request("a", 1)).Token
			for _, n := range s.nodes {
				n.Break(bg, "n")
			}
			above := func(token uint64) {
				t.Helper()
				if token <= last {
					t.Errorf("token %d after %d, votes %v", token, last, votes)
				}
				last = token
			}
			above(s.hold(b, request("b", 1)).Token)
			s.release(b, request("b", 1))
			second := request("a", 2)
			above(s.hold(a, second).Token)
			a.fail(faultstore.Release, down, 0, 1)
			if err := a.Release(bg, refOf(second)); !errors.Is(err, quorum.ErrNoQuorum) {
				t.Fatalf("Release: got %v, want ErrNoQuorum", err)
			}
			above(s.hold(a, request("a", 3)).Token)
		})
	}
}
