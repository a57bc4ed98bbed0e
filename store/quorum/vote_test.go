package quorum_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

// TestGrantInOneRound: nodes that give the proposed token are asked once for a grant.
func TestGrantInOneRound(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.votes = true
		c := s.client()
		last := uint64(0)
		for i := range 5 {
			r := request("a", i)
			r.Tokens = 10
			g := s.hold(c, r)
			if g.Token <= last || g.Short != 0 {
				t.Errorf("token %d, %d fewer than 10, after %d", g.Token, g.Short, last)
			}
			last = g.Token + 9
			s.release(c, r)
		}
		for i, link := range c.links {
			want(t, "votes", link.Count(faultstore.Acquire), 5)
			if n := link.Count(faultstore.RaiseToken) + link.Count(faultstore.Incarnation); n > 0 {
				t.Errorf("node %d: %d calls beside votes and releases", i, n)
			}
		}
	})
}

// TestOneTokenIsNotGivenTwice: two handles that have seen nothing propose the same token. The node
// that votes for both gives it to one of them.
func TestOneTokenIsNotGivenTwice(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
			inBubble(t, 3, func(s *site) {
				s.votes = votes
				a, b := s.client(), s.client()
				a.cut(down, 2)
				b.cut(down, 0)
				ra, rb := request("a", 1), request("b", 1)
				ra.Mode, rb.Mode, ra.Tokens, rb.Tokens = mode, mode, 5, 5
				first := s.hold(a, ra)
				if mode == store.Exclusive {
					s.release(a, ra)
				}
				if second := s.hold(b, rb); second.Token < first.Token+5 {
					t.Errorf("%v, votes %v: token %d after %d to %d", mode, votes, second.Token, first.Token, first.Token+4)
				}
			})
		}
	}
}

// TestFault20VoteOfARestartedNode: the life that counts is that of the node when it votes. One that has
// lost a vote of the holder since it was last asked makes no majority.
func TestFault20VoteOfARestartedNode(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.votes = true
		a, b := s.client(), s.client()
		probe := request("p", 1) // b knows all nodes from before
		s.hold(b, probe)
		s.release(b, probe)
		a.cut(down, 2)
		s.hold(a, request("a", 1))
		b.links[1].On(faultstore.Acquire, faultstore.From(1), faultstore.DelayRequest(50*time.Millisecond))
		time.AfterFunc(20*time.Millisecond, func() { s.restart(1) })
		if g, err := b.Acquire(bg, request("b", 1)); g.Held || err == nil {
			t.Errorf("got %+v, %v beside the holder", g, err)
		}
	})
}

// TestLateVoteRaisesNoOtherHold: a vote that arrives after its request has got a token elsewhere, or
// was released, leaves the order of tokens as it is.
func TestLateVoteRaisesNoOtherHold(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.votes = true
		a, b := s.client(), s.client()
		a.links[0].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(lease/4))
		ra := request("a", 1)
		first := s.hold(a, ra).Token
		s.release(a, ra)
		second := s.hold(b, request("b", 1)).Token
		time.Sleep(lease / 2) // the vote has arrived, at a node where the id was buried
		s.release(b, request("b", 1))
		third := s.hold(a, request("a", 2)).Token
		if first >= second || second >= third {
			t.Errorf("tokens %d, %d, %d", first, second, third)
		}
	})
}

// TestRequestsThatDoNotKnowWhatTheyHold: each of three requests has one node, which always answers after
// the others have refused. They do not wait for each other for ever.
func TestRequestsThatDoNotKnowWhatTheyHold(t *testing.T) {
	for _, votes := range []bool{false, true} {
		inBubble(t, 3, func(s *site) {
			s.votes = votes
			ctx, cancel := context.WithTimeout(bg, 3*lease)
			defer cancel()
			var all sync.WaitGroup
			for i := range 3 {
				c := s.client()
				for k, link := range c.links {
					link.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(5*time.Millisecond))
					if k == i {
						link.On(faultstore.Acquire, faultstore.Every, faultstore.DelayReply(100*time.Millisecond))
					}
				}
				d := s.dlock(c)
				all.Go(func() {
					defer d.Close()
					h, err := d.Mutex("m").LockContext(ctx)
					if err != nil {
						t.Errorf("client %d, votes %v: %v", i, votes, err)
						return
					}
					h.Unlock()
				})
			}
			all.Wait()
		})
	}
}
