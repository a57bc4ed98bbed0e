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

// TestFault23ErrorsAreNoVotes: and the error is none of a node.
func TestFault23ErrorsAreNoVotes(t *testing.T) {
	for _, err := range []error{faultstore.ErrTransport, store.ErrRefused} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			a.cut(down, 1)
			a.cut(faultstore.Answer(err), 2)
			got := s.refused(a, request("a", 1), quorum.ErrNoQuorum)
			for _, refusal := range []error{store.ErrHeld, store.ErrRefused, store.ErrLost} {
				if errors.Is(got, refusal) {
					t.Errorf("%v matches %v", got, refusal)
				}
			}
			var e *quorum.NoQuorumError
			if !errors.Is(got, faultstore.ErrTransport) || !errors.As(got, &e) || e.Need != 2 || !errors.Is(e.Nodes[2], err) || e.Nodes[0] != nil {
				t.Errorf("got %#v", got)
			}
			want(t, "holders at node 0", s.holders(0), "") // given back
		})
	}
}

// TestRefusalsOfAMajority are the store's.
func TestRefusalsOfAMajority(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		a.cut(faultstore.Answer(store.ErrRefused), 1, 2)
		s.refused(a, request("a", 1), store.ErrRefused)
	})
}

// plain is a node that has only what a node needs.
type plain struct {
	store.Store
	store.TokenRaiser
}

// TestOperatorsNeedAMajorityOfNodes: Break and List say it if a majority cannot.
func TestOperatorsNeedAMajorityOfNodes(t *testing.T) {
	for unable, want := range []error{nil, nil, store.ErrUnsupported, store.ErrUnsupported} {
		var nodes []store.Store
		for i := range 3 {
			m := memory.New()
			if nodes = append(nodes, m); i < unable {
				nodes[i] = plain{m, m}
			}
		}
		q, err := quorum.New(nodes...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Break(t.Context(), "n"); !errors.Is(err, want) {
			t.Errorf("Break with %d nodes that cannot: got %v, want %v", unable, err, want)
		}
		if _, err := q.List(t.Context()); !errors.Is(err, want) {
			t.Errorf("List with %d nodes that cannot: got %v, want %v", unable, err, want)
		}
		q.Close()
	}
}

// TestFault03ReleaseOfUnheardAsk: a node did it and said nothing, the others were a
// majority, and so the caller knows of no unknown outcome.
func TestFault03ReleaseOfUnheardAsk(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.DropReply(), "reply late": faultstore.DelayReply(3 * time.Second),
		"late": faultstore.DelayRequest(3 * time.Second), "silent": faultstore.MuteReply(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a := s.client()
				a.links[2].On(faultstore.Acquire, faultstore.Every, fault)
				r := request("a", 1)
				s.hold(a, r)
				s.release(a, r)
				time.Sleep(4 * time.Second)
				for i := range s.nodes {
					want(t, "holders", s.holders(i), "")
				}
			})
		})
	}
}

// TestRefusalLeavesNothing: nobody will release what was refused.
func TestRefusalLeavesNothing(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		a.cut(down, 2)
		ra := request("a", 1)
		s.hold(a, ra)
		// It gets node 2 and is late there, or cannot hear of it.
		b.links[2].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(2*time.Second))
		s.refused(b, request("b", 1), store.ErrHeld)
		time.Sleep(3 * time.Second)
		want(t, "holders at node 2", s.holders(2), "")
	})
}

// TestReleaseReachesNodesLater: those that were down when the lock was released.
func TestReleaseReachesNodesLater(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		heal := a.cut(down, 1)
		s.release(a, r)
		want(t, "holders at node 1", s.holders(1), "a")
		time.Sleep(time.Second)
		heal()
		time.Sleep(300 * time.Millisecond)
		want(t, "holders at node 1", s.holders(1), "")
	})
}

// TestReleaseOfWhatWasGivenBackInVain: a majority has granted, and has heard neither of the end of that try nor of the
// release. So the release is not confirmed before it has.
func TestReleaseOfWhatWasGivenBackInVain(t *testing.T) {
	for _, again := range []int{0, 1, 3} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			before, r := request("b", 1), request("a", 1)
			s.hold(a, before)
			s.release(a, before)
			s.restart(1) // so what these two grant is no vote
			s.restart(2)
			heal := a.fail(faultstore.Release, down, 1, 2)
			for range 1 + again {
				s.refused(a, r, quorum.ErrNoQuorum)
			}
			for range 2 {
				if err := a.Release(bg, refOf(r)); !errors.Is(err, quorum.ErrNoQuorum) {
					t.Errorf("asked %d times: Release: got %v, want ErrNoQuorum", 1+again, err)
				}
			}
			want(t, "holders at nodes 1 and 2", s.holders(1)[:1]+s.holders(2)[:1], "aa")
			heal()
			s.release(a, r)
			for i := range s.nodes {
				want(t, "holders", s.holders(i), "")
			}
		})
	}
}

// TestReleaseReachesAPlaceGrantedMeanwhile: a node that cannot be reached grants a
// place that was given up, at the end of its time.
func TestReleaseReachesAPlaceGrantedMeanwhile(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		ra, rb := request("a", 1), waiting(request("b", 1))
		rb.WaitTTL = lease
		s.hold(a, ra)
		s.refused(b, rb, nil)
		heal := b.cut(down, 2)
		s.release(b, rb)
		time.Sleep(lease - time.Second)
		s.release(a, ra)
		synctest.Wait()
		want(t, "holders at node 2", s.holders(2), "b")
		time.Sleep(lease - time.Second)
		want(t, "holders at node 2", s.holders(2), "b")
		heal()
		time.Sleep(300 * time.Millisecond)
		want(t, "holders at node 2", s.holders(2), "")
	})
}

// TestLateReleaseOfAnEarlierTry: what a request gave back in vain may arrive when the
// same request has been granted; the node it arrives at must not have been needed.
func TestLateReleaseOfAnEarlierTry(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		ra := waiting(request("a", 1))
		// Node 0 is a's, the others are b's; then a gives node 0 back, which is late.
		rb := request("b", 1)
		for _, n := range s.nodes[1:] {
			n.Acquire(bg, rb)
		}
		a.links[0].On(faultstore.Release, faultstore.Nth(1), faultstore.DelayRequest(2*time.Second))
		s.refused(a, ra, nil)
		s.refused(a, ra, nil)
		s.nodes[1].Release(bg, refOf(rb))
		s.nodes[2].Release(bg, refOf(rb))
		a.cut(down, 2)
		if g, _ := a.Acquire(bg, ra); g.Held {
			s.nodes[2].Break(bg, "n") // also its place there, of which it does not know
			time.Sleep(3 * time.Second)
			s.refused(b, request("b", 2), store.ErrHeld)
		}
	})
}

// TestRepeatedRequestKeepsTheHold: a duplicate that arrives while nodes are down
// is harmless to the hold that somebody relies on.
func TestRepeatedRequestKeepsTheHold(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		heal := a.cut(down, 1, 2)
		s.refused(a, r, quorum.ErrNoQuorum)
		heal()
		for i := range s.nodes {
			want(t, "holders", s.holders(i), "a")
		}
	})
}

// TestCallerLeaves: the call returns, and what it asked for comes to an end.
func TestCallerLeaves(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		a.cut(faultstore.Mute(), 0, 1, 2)
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := a.Acquire(ctx, request("a", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		want(t, "took", time.Since(start), time.Millisecond)
	})
}

// TestClose: releases on their way get a second, no more, and nothing is left.
func TestClose(t *testing.T) {
	for _, delay := range []time.Duration{300 * time.Millisecond, time.Hour} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			r := request("a", 1)
			s.hold(a, r)
			a.links[1].On(faultstore.Release, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
				select {
				case <-time.After(delay):
				case <-ctx.Done():
				}
				return deliver(context.WithoutCancel(ctx))
			})
			a.links[0].On(faultstore.Release, faultstore.Every, down)
			a.Release(bg, refOf(r))
			start := time.Now()
			a.Close()
			if took := time.Since(start); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			if _, err := a.Acquire(bg, r); !errors.Is(err, store.ErrClosed) {
				t.Errorf("after Close: got %v", err)
			}
			synctest.Wait()
		})
	}
}

// TestCallersWhoLeftDoNotPileUp: each request of an id waits for the one before,
// but only as long as its caller does.
func TestCallersWhoLeftDoNotPileUp(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		heal := a.cut(faultstore.Mute(), 0, 1, 2)
		for range 20 {
			ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
			if _, err := a.Acquire(ctx, request("a", 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		heal()
		start := time.Now()
		s.hold(a, request("a", 1))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestReleaseWaitsForAVote: a node that is a little slower than the majority buries no id, which would make it slower
// still. Its release comes when it has answered; one whose answer is lost does bury.
func TestReleaseWaitsForAVote(t *testing.T) {
	for name, x := range map[string]struct {
		fault faultstore.Fault
		bury  bool
	}{
		"slow": {faultstore.DelayReply(50 * time.Millisecond), false},
		"lost": {faultstore.MuteReply(), true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				s.votes = true
				a := s.client()
				a.links[2].On(faultstore.Acquire, faultstore.Every, x.fault)
				r := request("a", 1)
				s.hold(a, r)
				released := time.Now()
				s.release(a, r)
				if took := time.Since(released); took > 20*time.Millisecond {
					t.Errorf("the release took %v", took)
				}
				time.Sleep(time.Second)
				for i, link := range a.links {
					calls := link.Calls(faultstore.Release)
					if len(calls) == 0 {
						t.Fatalf("node %d was not asked to release", i)
					}
					for _, c := range calls {
						want(t, "buried", c.Refs[0].Bury, x.bury && i == 2)
					}
					want(t, "left", s.left(i), "")
				}
			})
		})
	}
}

// TestRefusedTryBuriesNothing: a majority refuses, and a slower node is about to refuse too. It is asked for nothing more.
func TestRefusedTryBuriesNothing(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.votes = true
		a, b := s.client(), s.client()
		s.hold(b, request("b", 1))
		a.links[2].On(faultstore.Acquire, faultstore.Every, faultstore.DelayReply(50*time.Millisecond))
		for i := range 20 {
			began := time.Now()
			s.refused(a, request("a", i), store.ErrHeld)
			if took := time.Since(began); took > 20*time.Millisecond {
				t.Errorf("the refusal took %v", took)
			}
		}
		time.Sleep(2 * time.Second)
		for i, link := range a.links {
			want(t, "releases", len(link.Calls(faultstore.Release)), 0)
			want(t, "left", s.left(i), "b")
		}
	})
}

// TestRefusedTryDoesNotWaitForAPlace: a silent node costs a Try the timeout of its lease, not of the longer WaitTTL.
func TestRefusedTryDoesNotWaitForAPlace(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r, other := shared(request("a", 1)), shared(request("b", 1))
		s.hold(a, r)
		s.hold(a, other)
		a.links[2].On(faultstore.Release, faultstore.Every, faultstore.MuteReply())
		a.links[2].On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
		upgrade := request("a", 2)
		upgrade.TTL, upgrade.WaitTTL = 250*time.Millisecond, 10*time.Second
		began := time.Now()
		s.refused(a, upgrade, store.ErrUpgrade)
		if took, most := time.Since(began), 2*25*time.Millisecond; took > most { // a tenth of the TTL for each of two calls
			t.Errorf("the refusal took %v, want at most %v", took, most)
		}
	})
}

// TestOneRequestOfATryAtATime: a node that has not answered an earlier request is sent no later one. So its answers come
// in order, and what the request has there is given back.
func TestOneRequestOfATryAtATime(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		other, r := request("x", 1), waiting(request("a", 1))
		for _, n := range s.nodes {
			n.Acquire(bg, other)
		}
		a.links[0].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(200*time.Millisecond))
		for _, link := range a.links[1:] {
			link.On(faultstore.Acquire, faultstore.Nth(3), faultstore.DelayReply(20*time.Millisecond))
		}
		s.refused(a, r, nil)
		s.nodes[0].Release(bg, refOf(other))
		time.Sleep(100 * time.Millisecond)
		s.refused(a, r, nil)
		want(t, "requests to node 0", a.links[0].Count(faultstore.Acquire), 1)
		want(t, "holders at node 0", s.holders(0), "a")
		time.Sleep(90 * time.Millisecond)
		s.refused(a, r, nil) // hears of node 0 while nodes 1 and 2 answer, and waits for these to follow
		want(t, "holders at node 0", s.holders(0), "a")
		s.refused(a, r, nil) // gives node 0 back
		want(t, "holders at node 0", s.holders(0), "")
	})
}

// TestReleaseBeginsWithThePresentTry: the hold ends first, whatever the release of an earlier try still waits for.
func TestReleaseBeginsWithThePresentTry(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r, other := waiting(request("a", 1)), request("x", 1)
		for _, n := range s.nodes[1:] {
			n.Acquire(bg, other)
		}
		off := a.links[0].On(faultstore.Release, faultstore.Every, faultstore.MuteReply())
		s.refused(a, r, nil)
		s.refused(a, r, nil) // gives node 0 back, and does not hear that it has
		for _, n := range s.nodes[1:] {
			n.Release(bg, refOf(other))
		}
		s.hold(a, r)
		synctest.Wait()
		asks := a.links[0].Calls(faultstore.Acquire)
		before := a.links[0].Count(faultstore.Release)
		a.Release(bg, refOf(r))
		time.Sleep(10 * time.Millisecond)
		releases := a.links[0].Calls(faultstore.Release)[before:]
		want(t, "the first release at node 0", releases[0].ID(), asks[len(asks)-1].ID())
		off()
	})
}
