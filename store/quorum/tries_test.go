package quorum_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// left is what node i keeps of the lock: first characters of the ids that hold, then
// of those that wait.
func (s *site) left(i int) (ids string) {
	state, err := s.nodes[i].Inspect(bg, "n")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range append(state.Holders, state.Queue...) {
		ids += e.ID[:1]
	}
	return ids
}

// TestLateReleaseMissesALaterTry: a release of an earlier try that arrives when the request has been granted leaves the
// hold as it is, also where its node is one of a bare majority.
func TestLateReleaseMissesALaterTry(t *testing.T) {
	for _, votes := range []bool{false, true} {
		inBubble(t, 3, func(s *site) {
			s.votes = votes
			a, b := s.client(), s.client()
			ra, rb := waiting(request("a", 1)), request("b", 1)
			for _, n := range s.nodes[1:] {
				n.Acquire(bg, rb)
			}
			// Node 0 is a's, which gives it back; that arrives much later.
			arrive := make(chan struct{})
			a.links[0].On(faultstore.Release, faultstore.Every, faultstore.HoldRequest(arrive))
			s.refused(a, ra, nil)
			s.refused(a, ra, nil)
			for _, n := range s.nodes[1:] {
				n.Release(bg, refOf(rb))
			}
			a.cut(down, 2)
			s.hold(a, ra)
			s.nodes[2].Break(bg, "n")
			for range 4 {
				time.Sleep(lease / 3)
				if err := s.renew(a, ra); err != nil {
					t.Fatalf("votes %v: renewal by the two nodes of the hold: %v", votes, err)
				}
			}
			close(arrive)
			synctest.Wait()
			want(t, "holders at node 0", s.holders(0), "a")
			s.refused(b, request("b", 2), store.ErrHeld)
		})
	}
}

// TestRenewalMeetsRelease: a renewal of which one node knew before the release and
// another after it is one of a hold that is lost, also if the third is late.
func TestRenewalMeetsRelease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		a.links[0].On(faultstore.Renew, faultstore.Every, faultstore.DelayReply(300*time.Millisecond))
		for _, link := range a.links[1:] {
			link.On(faultstore.Renew, faultstore.Every, faultstore.DelayRequest(100*time.Millisecond))
		}
		a.links[2].On(faultstore.Release, faultstore.Every, faultstore.DelayRequest(time.Second))
		renewed := make(chan error)
		go func() { renewed <- s.renew(a, r) }()
		time.Sleep(50 * time.Millisecond)
		s.release(a, r)
		if err := <-renewed; !errors.Is(err, store.ErrLost) {
			t.Errorf("got %v, want it lost", err)
		}
	})
}

// TestGrantWhileReleasesAreLate: releases of earlier tries that are still to arrive at a majority are no reason to refuse
// the request, and leave nothing.
func TestGrantWhileReleasesAreLate(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := waiting(request("a", 1))
		// All nodes vote for a, and a does not learn it. The releases to two of them arrive much later.
		arrive := make(chan struct{})
		for _, link := range a.links[:2] {
			link.On(faultstore.Release, faultstore.Every, faultstore.HoldRequest(arrive))
			link.On(faultstore.Incarnation, faultstore.Nth(1), down)
		}
		s.refused(a, r, quorum.ErrNoQuorum)
		want(t, "left at node 2", s.left(2), "")
		token := s.hold(a, r).Token
		close(arrive)
		time.Sleep(time.Second)
		want(t, "token of the repeated request", s.hold(a, r).Token, token)
		s.release(a, r)
		time.Sleep(time.Second)
		s.nothingLeft()
	})
}

// TestEndedTriesAreBuried: a request of an ended try that arrives after its release gets nothing.
func TestEndedTriesAreBuried(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := waiting(request("a", 1))
		heal := a.cut(faultstore.Mute(), 2)
		for _, link := range a.links[:2] {
			link.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(3*time.Second))
		}
		s.refused(a, r, quorum.ErrNoQuorum)
		heal()
		if err := a.Release(bg, refOf(r)); !errors.Is(err, store.ErrLost) {
			t.Errorf("release of a request that got nothing: %v", err)
		}
		time.Sleep(4 * time.Second)
		s.nothingLeft()
	})
}

// TestBusyLockWhileReleasesAreLate: a request that does not wait is told that other owners hold, if a majority says
// so.
func TestBusyLockWhileReleasesAreLate(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		arrive := make(chan struct{})
		for _, link := range a.links[:2] {
			link.On(faultstore.Release, faultstore.Every, faultstore.HoldRequest(arrive))
			link.On(faultstore.Incarnation, faultstore.Nth(1), down)
		}
		s.refused(a, r, quorum.ErrNoQuorum)
		time.Sleep(lease + time.Millisecond)
		for _, n := range s.nodes {
			n.Acquire(bg, request("x", 1))
		}
		s.refused(a, r, store.ErrHeld)
		close(arrive)
	})
}

// TestLateGrantOfARefusedID: what nodes grant late to a request that a majority has refused is given back.
func TestLateGrantOfARefusedID(t *testing.T) {
	for what, late := range map[string]func(a *client){
		"while another node gives back": func(a *client) {
			a.links[3].On(faultstore.Release, faultstore.Nth(1), faultstore.DelayReply(400*time.Millisecond))
			a.links[4].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(300*time.Millisecond))
		},
		"a request of an earlier try, when its node has given back a later one": func(a *client) {
			a.links[4].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(20*time.Millisecond))
			a.links[3].On(faultstore.Release, faultstore.Nth(2), faultstore.DelayReply(300*time.Millisecond))
		},
	} {
		inBubble(t, 5, func(s *site) {
			a := s.client()
			for _, n := range s.nodes[:3] {
				n.Acquire(bg, request("x", 1))
			}
			late(a)
			s.refused(a, request("a", 1), store.ErrHeld)
			time.Sleep(time.Second)
			for i := 3; i < len(s.nodes); i++ {
				want(t, "left "+what, s.left(i), "")
			}
		})
	}
}

// TestTryWhileReleasesAreLost: a request that does not wait is told that the store cannot say.
func TestTryWhileReleasesAreLost(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		d := s.dlock(a)
		for _, link := range a.links[:2] {
			link.On(faultstore.Release, faultstore.Nth(1), down)
			link.On(faultstore.Incarnation, faultstore.Every, down)
		}
		_, err := d.Mutex("n").TryLockContext(bg)
		if !errors.Is(err, dlock.ErrUnavailable) || !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("got %v, want it unavailable for want of a quorum", err)
		}
		time.Sleep(time.Second)
		s.nothingLeft()
		d.Close()
	})
}

// TestNoReleaseBetweenTries: what a try without a majority leaves to be given back does
// not take away what a later try of the same call is granted by.
func TestNoReleaseBetweenTries(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		other := request("x", 1)
		s.nodes[1].Acquire(bg, other)
		a.links[2].On(faultstore.Acquire, faultstore.Nth(1), down)
		a.links[2].On(faultstore.Release, faultstore.Nth(1), faultstore.DelayRequest(50*time.Millisecond))
		s.hold(a, request("a", 1))
		time.Sleep(100 * time.Millisecond)
		s.nodes[1].Release(bg, refOf(other))
		s.refused(b, request("b", 1), store.ErrHeld)
	})
}

// TestNoReleaseBetweenCalls: what a call that is refused leaves to be given back does not
// take away what a later call of the same id is granted by.
func TestNoReleaseBetweenCalls(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		other := request("x", 1)
		for _, n := range s.nodes[:2] {
			n.Acquire(bg, other)
		}
		a.links[2].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(100*time.Millisecond))
		arrive := make(chan struct{})
		a.links[2].On(faultstore.Release, faultstore.Nth(1), faultstore.HoldRequest(arrive))
		s.refused(a, request("a", 1), store.ErrHeld)
		for _, n := range s.nodes[:2] {
			n.Release(bg, refOf(other))
		}
		time.Sleep(200 * time.Millisecond)
		heal := a.cut(down, 1)
		g, err := a.Acquire(bg, request("a", 1))
		until := time.Now().Add(lease)
		heal()
		close(arrive)
		time.Sleep(100 * time.Millisecond)
		if _, errB := b.Acquire(bg, request("b", 1)); g.Held && errB == nil && time.Now().Before(until) {
			t.Errorf("granted to b, while a was granted %+v, %v", g, err)
		}
	})
}

// TestReleaseLongAfterItsTry: a handle may forget an id before the last release of it arrives. The id is asked for by
// other tries then.
func TestReleaseLongAfterItsTry(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		ra, other := waiting(request("a", 1)), request("x", 1)
		for _, n := range s.nodes[1:] {
			n.Acquire(bg, other)
		}
		// Node 0 is a's, who gives it back; all that arrives later than it should.
		off := a.links[0].On(faultstore.Release, faultstore.Every, down)
		s.refused(a, ra, nil)
		s.refused(a, ra, nil)
		time.Sleep(lease + time.Second)
		for i := range 100 {
			r := request("y", i)
			r.Name = "another"
			s.hold(a, r)
			s.release(a, r)
		}
		off()
		hold := make(chan struct{})
		a.links[0].On(faultstore.Release, faultstore.Every, faultstore.HoldRequest(hold))
		time.Sleep(time.Second)
		for _, n := range s.nodes[1:] {
			n.Release(bg, refOf(other))
		}
		heal := a.cut(down, 1)
		g, err := a.Acquire(bg, ra)
		heal()
		close(hold)
		time.Sleep(100 * time.Millisecond)
		if _, errB := b.Acquire(bg, request("b", 1)); g.Held && errB == nil {
			t.Errorf("granted to b, while a was granted %+v, %v", g, err)
		}
	})
}

// TestVoteWhileAReleaseIsLate: with another node dead, a request is granted by the vote of a node at which a release of
// an earlier try may still arrive.
func TestVoteWhileAReleaseIsLate(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r, other := waiting(request("a", 1)), request("x", 1)
		heal := a.cut(down, 1)
		s.nodes[2].Acquire(bg, other)
		a.links[0].On(faultstore.Release, faultstore.Nth(1), faultstore.DropReply())
		s.refused(a, r, nil)
		s.refused(a, r, nil) // gives node 0 back, and does not hear that it has
		time.Sleep(time.Second)
		s.nodes[2].Release(bg, refOf(other))
		s.hold(a, r)
		s.release(a, r)
		heal()
		time.Sleep(time.Second)
		s.nothingLeft()
	})
}

// TestRefusalAfterAVoteLeavesNothing: nodes that have voted refuse what comes then, for
// certain; what they have granted is given back, also by a node that answered late.
func TestRefusalAfterAVoteLeavesNothing(t *testing.T) {
	for name, x := range map[string]struct {
		op    faultstore.Op
		apart bool // the counters are apart
	}{
		"the question for their lives": {faultstore.Incarnation, false},
		"the raise":                    {faultstore.RaiseToken, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a := s.client()
				if x.apart { // what node 0 gives is proposed to the others then
					s.ahead(0)
					other := request("x", 1)
					for _, n := range s.nodes[1:] {
						n.Acquire(bg, other)
					}
					s.refused(a, request("a", 1), store.ErrHeld)
					for _, n := range s.nodes[1:] {
						n.Release(bg, refOf(other))
					}
				}
				a.links[0].On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
				for _, link := range a.links[1:] {
					link.On(x.op, faultstore.Nth(1), faultstore.Answer(store.ErrRefused))
				}
				s.refused(a, request("a", 2), store.ErrRefused)
				time.Sleep(time.Second)
				s.nothingLeft()
			})
		})
	}
}

// TestLateGrantThatIsNotEnough: a node that answers late, again and again, is no reason to
// ask again while a majority refuses.
func TestLateGrantThatIsNotEnough(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		other := request("x", 1)
		for _, n := range s.nodes[1:] {
			n.Acquire(bg, other)
		}
		events := 0
		a.Listen(func(store.Event) { events++ })
		a.links[0].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(300*time.Millisecond))
		s.refused(a, waiting(request("a", 1)), nil)
		time.Sleep(time.Second)
		want(t, "events", events, 0)
	})
}

// TestHandleForgets: what was released, or refused and given back, stays in no memory.
func TestHandleForgets(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		forgotten := func(c *client) {
			t.Helper()
			want(t, "entries", quorum.Entries(c.Store), 0)
			want(t, "chores", quorum.Chores(c.Store), 0)
		}
		for i := range 100 {
			s.hold(a, request("a", i))
			s.release(a, request("a", i))
		}
		forgotten(a)

		rb := request("b", 1)
		s.hold(b, rb)
		for i := range 100 {
			s.refused(a, request("a", 100+i), store.ErrHeld)
		}
		forgotten(a)

		s.nodes[0].Break(bg, "n") // what a gets there it gives back
		for i := range 20 {
			s.refused(a, request("a", 200+i), store.ErrHeld)
		}
		forgotten(a)
		want(t, "left at node 0", s.left(0), "")
	})
}

// TestRefusalByAMajorityLeavesNothing: at the node that has not refused, whatever that
// did or is still to do.
func TestRefusalByAMajorityLeavesNothing(t *testing.T) {
	for name, x := range map[string]struct {
		held  bool // by somebody else
		fault faultstore.Fault
	}{
		"granted":             {false, faultstore.DelayRequest(0)},
		"queued":              {true, faultstore.DelayRequest(0)},
		"granted late":        {false, faultstore.DelayRequest(2 * time.Second)},
		"queued late":         {true, faultstore.DelayRequest(2 * time.Second)},
		"granted, reply lost": {false, faultstore.DropReply()},
		"queued, reply lost":  {true, faultstore.DropReply()},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a := s.client()
				other := request("x", 1)
				if x.held {
					s.nodes[0].Acquire(bg, other)
				}
				a.cut(faultstore.Answer(store.ErrRefused), 1, 2)
				a.links[0].On(faultstore.Acquire, faultstore.Every, x.fault)
				s.refused(a, waiting(request("a", 1)), store.ErrRefused)
				time.Sleep(3 * time.Second)
				s.nodes[0].Release(bg, refOf(other))
				want(t, "left at node 0", s.left(0), "")
			})
		})
	}
}

// TestNoRequestAfterItsRelease: a caller leaves and releases while some of the requests are still to be sent. They are
// not sent then, or are buried.
func TestNoRequestAfterItsRelease(t *testing.T) {
	for i := range 50 {
		inBubble(t, 5, func(s *site) {
			a := s.client()
			r := request("a", i)
			ctx, leave := context.WithCancel(bg)
			defer leave()
			released := make(chan error, 1)
			var first sync.Once
			for k, link := range a.links {
				link.On(faultstore.Acquire, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
					first.Do(func() {
						leave()
						ref := refOf(r)
						ref.Bury = true
						go func() { released <- a.Release(bg, ref) }()
					})
					if k%2 == i%2 {
						time.Sleep(time.Duration(i) * 20 * time.Millisecond)
					}
					return deliver(context.WithoutCancel(ctx))
				})
			}
			if g, err := a.Acquire(ctx, r); err == nil {
				t.Errorf("granted to a caller that has left: %+v", g)
			}
			<-released
			time.Sleep(2 * time.Second)
			for k := range s.nodes {
				want(t, "left", s.left(k), "")
			}
		})
	}
}

// TestRenewalOfAPlaceKeepsIt: a place is no hold, so its renewal says that it is lost, and changes nothing.
func TestRenewalOfAPlaceKeepsIt(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b, c := s.client(), s.client(), s.client()
		s.hold(a, request("a", 1))
		first, second := waiting(request("b", 1)), waiting(request("c", 1))
		s.refused(b, first, nil)
		s.refused(c, second, nil)
		if err := s.renew(b, first); !errors.Is(err, store.ErrLost) {
			t.Errorf("renewal of a place: got %v", err)
		}
		s.refused(b, first, nil)
		for i := range s.nodes {
			want(t, "holder and queue", s.left(i), "abc")
		}
	})
}

// TestInspectCountsNodes: two tries of one id at one node are no majority.
func TestInspectCountsNodes(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := waiting(request("a", 1))
		a.links[0].On(faultstore.Release, faultstore.Every, down)
		for _, n := range s.nodes[1:] {
			n.Acquire(bg, request("x", 1))
		}
		for range 3 { // the second gives node 0 back, which does not hear of it
			s.refused(a, r, nil)
		}
		want(t, "holds at node 0", s.holders(0), "aa")
		state, err := a.Inspect(bg, "n")
		if err != nil || len(state.Holders) != 1 || state.Holders[0].ID != store.Short(request("x", 1).ID) {
			t.Errorf("Inspect: got %+v, %v, want the holder x that a majority has", state, err)
		}
	})
}
