package quorum_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// TestFault101BareMajority: a node that missed the request of a new hold gets it at once. So
// another node that ends the lease early, because its clock jumped, lets no other owner in.
func TestFault101BareMajority(t *testing.T) {
	for name, miss := range map[string]func(s *site, a *client){
		"error": func(_ *site, a *client) {
			a.links[2].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropRequest())
		},
		"late error": func(_ *site, a *client) {
			a.links[2].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(50*time.Millisecond), faultstore.DropRequest())
		},
		"held by a request that gives it back": func(s *site, _ *client) {
			other := request("x", 1)
			s.nodes[2].Acquire(bg, other)
			time.AfterFunc(10*time.Millisecond, func() { s.nodes[2].Release(bg, refOf(other)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a, b := s.client(), s.client()
				miss(s, a)
				token := s.hold(a, request("a", 1)).Token
				time.Sleep(time.Second)
				want(t, "holders at node 2", s.holders(2), "a")
				if state, _ := s.nodes[2].Inspect(bg, "n"); state.Holders[0].Token < token {
					t.Errorf("node 2 has token %d, want %d or more", state.Holders[0].Token, token)
				}
				s.nodes[1].Break(bg, "n") // as a jump of its clock does
				s.refused(b, request("b", 1), store.ErrHeld)
				s.release(a, request("a", 1))
				synctest.Wait()
				s.nothingLeft()
			})
		})
	}
}

// TestSlowNodeIsGivenItsHoldsBack: a node that answers after a majority is given what it has lost, so that the next node
// may fail too.
func TestSlowNodeIsGivenItsHoldsBack(t *testing.T) {
	for _, later := range []time.Duration{0, 6 * time.Millisecond, 50 * time.Millisecond} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			for i, link := range a.links {
				delay := time.Millisecond
				if i == 2 {
					delay += later
				}
				link.On(faultstore.Any, faultstore.Every, faultstore.DelayReply(delay))
			}
			c := s.dlock(a)
			h, err := c.Mutex("n").LockContext(bg)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease)
			s.restart(2)
			time.Sleep(lease)
			if s.holders(2) == "" {
				t.Errorf("%v later: the node has no hold a lease after its restart", later)
			}
			s.restart(1)
			time.Sleep(lease)
			if err := h.Err(); err != nil {
				t.Errorf("%v later: %v", later, err)
			}
			h.Unlock()
			c.Close()
			synctest.Wait()
		})
	}
}

// TestCompletionEndsWithTheHold: a node is not asked for a hold that was released meanwhile.
func TestCompletionEndsWithTheHold(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		other := request("x", 1)
		s.nodes[2].Acquire(bg, other)
		s.hold(a, request("a", 1))
		s.release(a, request("a", 1))
		s.nodes[2].Release(bg, refOf(other))
		time.Sleep(time.Second)
		want(t, "left at node 2", s.left(2), "")
	})
}

// TestLongestLeaseIsTheLimit: with a longer lease a restarted node could vote too soon.
func TestLongestLeaseIsTheLimit(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.opts.LongestLease = lease
		a := s.client()
		r, long := request("a", 1), request("b", 1)
		long.Name, long.TTL = "other", lease+time.Millisecond
		s.refused(a, long, store.ErrRefused)
		s.hold(a, r)
		errs := a.Renew(bg, []store.Ref{refOf(long), refOf(r), refOf(long)})
		if errs[1] != nil || !errors.Is(errs[0], store.ErrRefused) || !errors.Is(errs[2], store.ErrRefused) {
			t.Errorf("Renew: got %v, want the longer leases refused and the other renewed", errs)
		}
		for _, link := range a.links {
			for _, c := range link.Calls(faultstore.Any) {
				if c.Name() == "other" {
					t.Errorf("a node was asked for the longer lease: %v", c.Op)
				}
			}
		}
	})
}

// TestExclusionLastsForTheLeaseOfTheName: a restarted node votes for a name with a short
// lease before it votes for one with a longer lease.
func TestExclusionLastsForTheLeaseOfTheName(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		short := func(id int) store.Request {
			r := request("a", id)
			r.Name, r.TTL, r.WaitTTL = "short", time.Second, time.Second
			return r
		}
		s.hold(a, request("a", 1))
		s.release(a, request("a", 1))
		s.restart(1)
		a.cut(down, 2)
		if g, err := a.Acquire(bg, short(2)); g.Held {
			t.Fatalf("granted by a node that has just restarted: %+v, %v", g, err)
		}
		time.Sleep(time.Second + time.Millisecond)
		s.hold(a, short(3))
		if g, err := a.Acquire(bg, request("a", 4)); g.Held {
			t.Errorf("granted after %v with a lease of %v: %+v, %v", time.Second, lease, g, err)
		}
		time.Sleep(lease)
		s.hold(a, request("a", 5))
	})
}

// TestRenewalBesideAShortLease: a hold whose nodes are too slow for the lease of another hold in the same call is renewed,
// and so is the other one.
func TestRenewalBesideAShortLease(t *testing.T) {
	for _, short := range []time.Duration{time.Second, lease / 2} {
		inBubble(t, 3, func(s *site) {
			a := s.client()
			long, other := request("a", 1), request("b", 1)
			other.Name, other.TTL, other.WaitTTL = "other", short, short
			s.hold(a, long)
			s.hold(a, other)
			for _, link := range a.links {
				link.On(faultstore.Renew, faultstore.Every, faultstore.DelayRequest(300*time.Millisecond))
			}
			errs := a.Renew(bg, []store.Ref{refOf(long), refOf(other)})
			if errs[0] != nil || errs[1] != nil {
				t.Errorf("beside a lease of %v: got %v, want both renewed", short, errs)
			}
		})
	}
}

// TestRenewalAfterAnUnconfirmedRelease: while no node has released the hold, it is alive, and is not told as lost. The
// nodes release it in the background as soon as they can.
func TestRenewalAfterAnUnconfirmedRelease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		heal := a.fail(faultstore.Release, faultstore.DropRequest(), 0, 1, 2)
		for range 3 {
			if err := a.Release(bg, refOf(r)); !errors.Is(err, quorum.ErrNoQuorum) {
				t.Fatalf("Release: got %v, want ErrNoQuorum", err)
			}
			time.Sleep(time.Second)
			want(t, "Renew", s.renew(a, r), nil)
		}
		want(t, "releases in the background", quorum.Chores(a.Store), 3)
		heal()
		time.Sleep(time.Second)
		s.nothingLeft()
		if err := s.renew(a, r); !errors.Is(err, store.ErrLost) {
			t.Errorf("Renew after the release: got %v, want ErrLost", err)
		}
		if err := a.Release(bg, refOf(r)); !errors.Is(err, store.ErrLost) {
			t.Errorf("Release after the release: got %v, want ErrLost", err)
		}
	})
}

// TestReleaseAfterItsChoresEnded: a release fails, and the hold is renewed for longer than the release is repeated in
// the background. The next release is sent all the same.
func TestReleaseAfterItsChoresEnded(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		heal := a.fail(faultstore.Release, down, 0, 1, 2)
		if err := a.Release(bg, refOf(r)); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("Release: got %v, want ErrNoQuorum", err)
		}
		for began := time.Now(); time.Since(began) < 3*lease; time.Sleep(lease / 3) {
			want(t, "Renew", s.renew(a, r), nil)
		}
		want(t, "releases in the background", quorum.Chores(a.Store), 0)
		heal()
		s.release(a, r)
		s.nothingLeft()
	})
}

// TestReleaseOfAForeignKey: a node that cannot release a hold still has it, so no release of it is told as lost.
func TestReleaseOfAForeignKey(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		heal := a.fail(faultstore.Release, faultstore.Answer(store.ErrForeignKey), 0, 1, 2)
		for range 2 {
			if err := a.Release(bg, refOf(r)); !errors.Is(err, store.ErrForeignKey) {
				t.Errorf("Release: got %v, want ErrForeignKey", err)
			}
		}
		heal()
		s.release(a, r)
		s.nothingLeft()
	})
}

// TestRenewalCountsNoLateGrant: a request that lands on a node when another owner has held the lock there completes no
// majority. So the first owner is not renewed, and gets nothing back.
func TestRenewalCountsNoLateGrant(t *testing.T) {
	for name, late := range map[string]int{"the request": 1, "a restoration": 2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a, b := s.client(), s.client()
				r, other := request("a", 1), request("b", 1)
				arrive := make(chan struct{})
				a.links[2].On(faultstore.Acquire, faultstore.From(late), faultstore.HoldRequest(arrive))
				s.hold(a, r)
				s.nodes[2].Break(bg, "n") // as a jump of its clock does
				want(t, "renewal by nodes 0 and 1", s.renew(a, r), nil)
				time.Sleep(time.Second)
				s.nodes[1].Break(bg, "n")
				b.cut(down, 0)
				s.hold(b, other)
				s.release(b, other)
				heal := a.links[2].On(faultstore.Renew, faultstore.Every, faultstore.Mute())
				if err := s.renew(a, r); !errors.Is(err, quorum.ErrNoQuorum) {
					t.Errorf("renewal by node 0: got %v, want ErrNoQuorum", err)
				}
				heal()
				close(arrive)
				synctest.Wait()
				want(t, "holders at node 2", s.holders(2)[:1], "a")
				if err := s.renew(a, r); !errors.Is(err, quorum.ErrNoQuorum) {
					t.Errorf("renewal by node 0 and a late grant: got %v, want ErrNoQuorum", err)
				}
				synctest.Wait()
				want(t, "holders at node 1", s.holders(1), "")
			})
		})
	}
}

// TestRenewalBesideARelease: what nodes have whose grant was not heard does not keep a released hold from being lost.
func TestRenewalBesideARelease(t *testing.T) {
	inBubble(t, 5, func(s *site) {
		a, r := s.client(), request("a", 1)
		a.fail(faultstore.Acquire, faultstore.DropReply(), 2, 3)
		s.hold(a, r)
		a.fail(faultstore.Release, faultstore.DelayRequest(10*time.Millisecond), 2, 3, 4)
		released := make(chan error)
		go func() { released <- a.Release(bg, refOf(r)) }()
		time.Sleep(time.Millisecond)
		want(t, "Renew beside a release", s.renew(a, r), store.ErrLost)
		want(t, "Release", <-released, nil)
	})
}

// TestUnheardGrantCountsLater: a node whose grant was not heard is asked for the hold when a majority has renewed it,
// and counts in the next renewal.
func TestUnheardGrantCountsLater(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		a.links[2].On(faultstore.Acquire, faultstore.Nth(1, 2), faultstore.MuteReply())
		s.hold(a, r)
		time.Sleep(2 * time.Second)
		want(t, "holders at node 2", s.holders(2), "a")
		for range 2 { // the first need not wait for node 2, which was silent
			want(t, "Renew by nodes 0 and 1", s.renew(a, r), nil)
			time.Sleep(time.Second)
		}
		a.cut(down, 0)
		want(t, "Renew by nodes 1 and 2", s.renew(a, r), nil)
	})
}
