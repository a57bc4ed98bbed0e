package quorum_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

var down = faultstore.DropRequest()

// TestTokensGrowOverOtherMajorities: two majorities have one node in common, and
// it is enough that this one has been told the token, for counters far apart.
func TestTokensGrowOverOtherMajorities(t *testing.T) {
	for i, mode := range []store.Mode{store.Exclusive, store.Shared, store.Exclusive, store.Shared} {
		inBubble(t, 3, func(s *site) {
			s.votes = i >= 2
			far := request("x", 1)
			far.Tokens = 1000
			s.nodes[0].Acquire(bg, far)
			s.nodes[0].Release(bg, refOf(far))

			a, b := s.client(), s.client()
			heal := a.cut(down, 2)
			ra, rb := request("a", 1), request("b", 1)
			ra.Mode, rb.Mode = mode, mode
			first := s.hold(a, ra).Token
			heal()
			if mode == store.Exclusive {
				s.release(a, ra)
			}
			b.cut(down, 0)
			if second := s.hold(b, rb).Token; first <= 1000 || second <= first {
				t.Errorf("%v: tokens %d and then %d", mode, first, second)
			}
		})
	}
}

// TestReadersHaveTokensOfTheirOwn: though they agree on them at the same time,
// over nodes whose counters are moved by other names meanwhile.
func TestReadersHaveTokensOfTheirOwn(t *testing.T) {
	inBubble(t, 5, readersTogether)
	inBubble(t, 5, func(s *site) {
		s.votes = true
		readersTogether(s)
	})
}

func readersTogether(s *site) {
	const readers = 12
	tokens, done := make(chan uint64, 3*readers), make(chan bool)
	for i := range readers {
		c := s.client()
		for k, l := range c.links {
			l.On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(time.Duration((i*7+k*3)%5)*time.Millisecond))
			l.On(faultstore.RaiseToken, faultstore.Every, faultstore.DelayRequest(time.Duration((i*5+k*2)%4)*time.Millisecond))
		}
		go func() {
			r := shared(request(string(rune('a'+i)), 1))
			r.Tokens = 1 + i%3
			g, err := c.Acquire(bg, r)
			if err != nil {
				s.t.Error(err)
			}
			for k := range uint64(r.Tokens) {
				tokens <- g.Token + k
			}
			done <- true
		}()
	}
	for range readers {
		<-done
	}
	close(tokens)
	seen := make(map[uint64]bool)
	for token := range tokens {
		if seen[token] {
			s.t.Errorf("token %d is there twice", token)
		}
		seen[token] = true
	}
}

// TestFault20RestartedNodeIsExcluded: a node that lost the vote of a holder is no part
// of a majority until that holder's lease is over at the latest.
func TestFault20RestartedNodeIsExcluded(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		probe := request("p", 1) // b knows all nodes from before
		s.hold(b, probe)
		s.release(b, probe)

		a.cut(down, 2)
		s.hold(a, request("a", 1))
		s.restart(1)
		err := s.refused(b, request("b", 1), quorum.ErrNoQuorum)
		var e *quorum.NoQuorumError
		if !errors.As(err, &e) || e.Nodes[1] == nil || e.Nodes[2] != nil {
			t.Errorf("got %v, want it to blame node 1 and not node 2", err)
		}
		views, err := b.Views(bg, "n")
		if err != nil || views[1].Excluded <= 0 || views[2].Excluded != 0 {
			t.Errorf("Views: got %+v, %v", views, err)
		}
		if err := s.renew(a, request("a", 1)); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("renewal by one of three nodes: got %v", err)
		}
		time.Sleep(lease / 2)
		s.refused(b, request("b", 2), store.ErrHeld)
		time.Sleep(lease / 2)
		s.hold(b, request("b", 3))
	})
}

// TestFault20RestartedNodeIsExcludedForALongerLease: also for one that the handle is asked for
// only after it has met the node again.
func TestFault20RestartedNodeIsExcludedForALongerLease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		short := func(id int) {
			r := request("p", id)
			r.Name, r.TTL, r.WaitTTL = "another", time.Second, time.Second
			s.hold(b, r)
			s.release(b, r)
		}
		short(1)
		a.cut(down, 2)
		s.hold(a, request("a", 1))
		s.restart(1)
		short(2)
		time.Sleep(1100 * time.Millisecond)
		s.refused(b, request("b", 1), store.ErrHeld)
		time.Sleep(lease)
		s.hold(b, request("b", 2))
	})
}

// TestRestartBetweenVoteAndCommit: the vote is of a life that is over.
func TestRestartBetweenVoteAndCommit(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		for i := range 2 { // the third is down
			probe := request("p", i)
			s.hold(a, probe)
			s.release(a, probe)
		}
		a.cut(down, 2)
		arrived := a.links[1].Arrived(faultstore.Incarnation, 3)
		a.links[1].On(faultstore.Incarnation, faultstore.Nth(3), faultstore.DelayRequest(10*time.Millisecond))
		go func() { <-arrived; s.restart(1) }()
		s.refused(a, request("a", 1), quorum.ErrNoQuorum)
	})
}

// young is a node that says since when it has been up.
type young struct {
	*memory.Store
	since time.Time
	id    string
}

func (y young) Incarnation(context.Context) (string, time.Duration, error) {
	return y.id, time.Since(y.since), nil
}

// TestFreshHandleDistrustsYoungNodes: it cannot know what they have forgotten.
func TestFreshHandleDistrustsYoungNodes(t *testing.T) {
	for _, durable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			node := func() store.Store { return young{memory.New(), time.Now(), rand.Text()} }
			s, err := quorum.NewWithOptions(&quorum.Options{Durable: durable}, node(), node(), node())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i, x := range []struct {
				after time.Duration
				ok    bool
			}{{lease / 2, durable}, {lease/2 - time.Millisecond, durable}, {2 * time.Millisecond, true}} {
				time.Sleep(x.after)
				r := request("a", i)
				g, err := s.Acquire(bg, r)
				if g.Held != x.ok || !x.ok && !errors.Is(err, quorum.ErrNoQuorum) {
					t.Errorf("durable %v, %d: got %+v, %v, want held: %v", durable, i, g, err, x.ok)
				}
				if g.Held {
					s.Release(bg, refOf(r))
				}
			}
		})
	}
}

// TestFault20RenewalRestores: one node that lost a hold gets it back, with its token; so
// the hold outlives the loss of another.
func TestFault20RenewalRestores(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		token := s.hold(a, r).Token
		s.restart(1)
		if err := s.renew(a, r); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, "holders at node 1", s.holders(1), "a")
		if state, _ := s.nodes[1].Inspect(bg, "n"); state.Holders[0].Token != token {
			t.Errorf("restored with token %d, want %d", state.Holders[0].Token, token)
		}
		s.restart(2)
		if err := s.renew(a, r); err != nil {
			t.Errorf("after another loss: %v", err)
		}
		s.release(a, r)
		synctest.Wait()
		for i := range s.nodes {
			want(t, "holders in the end", s.holders(i), "")
		}
	})
}

// TestFault101RestoreGoesOnAfterAReleasedHold: a hold that is gone again when the node is to give it its token
// keeps no other hold from being restored.
func TestFault101RestoreGoesOnAfterAReleasedHold(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		one, two := request("a", 1), request("b", 2)
		two.Name = "other"
		for _, r := range []store.Request{one, two} { // a node without data gives a lower token than the hold has
			earlier := r
			earlier.ID = request("z", 9).ID
			s.hold(a, earlier)
			s.release(a, earlier)
			s.hold(a, r)
		}
		s.restart(1)
		var raises atomic.Int64
		a.links[1].On(faultstore.RaiseToken, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
			if raises.Add(1) == 1 {
				s.nodes[1].Break(bg, "n")
				s.nodes[1].Break(bg, "other")
			}
			return deliver(ctx)
		})
		if errs := a.Renew(bg, []store.Ref{refOf(one), refOf(two)}); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		synctest.Wait()
		restored := 0
		for _, name := range []string{"n", "other"} {
			state, _ := s.nodes[1].Inspect(bg, name)
			restored += len(state.Holders)
		}
		if restored != 1 {
			t.Errorf("%d holds are restored, want 1; %d raised", restored, raises.Load())
		}
		s.release(a, one)
		s.release(a, two)
	})
}

// TestFault67RenewalCompletesNoMinority: another owner may have held the lock meanwhile.
func TestFault67RenewalCompletesNoMinority(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		s.restart(0)
		s.restart(1)
		if err := s.renew(a, r); !errors.Is(err, store.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		synctest.Wait()
		want(t, "holders at node 0", s.holders(0), "")
		want(t, "holders at node 1", s.holders(1), "")
	})
}

// TestRestoreDoesNotOutliveRelease: the node is asked for the hold again while it
// is given up.
func TestRestoreDoesNotOutliveRelease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		r := request("a", 1)
		s.hold(a, r)
		s.restart(1)
		a.links[1].On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(50*time.Millisecond))
		if err := s.renew(a, r); err != nil {
			t.Fatal(err)
		}
		s.release(a, r)
		time.Sleep(time.Second)
		want(t, "holders at node 1", s.holders(1), "")
	})
}

// TestLeaseRunsOutOnTheWay: a majority that was slow is none.
func TestLeaseRunsOutOnTheWay(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.opts.NodeTimeout = lease
		a := s.client()
		for _, l := range a.links {
			l.On(faultstore.RaiseToken, faultstore.Every, faultstore.DelayReply(lease-drift-time.Millisecond))
			l.On(faultstore.Incarnation, faultstore.Every, faultstore.DelayReply(lease-drift+time.Millisecond))
		}
		s.refused(a, request("a", 1), quorum.ErrNoQuorum)
		synctest.Wait()
		for i := range s.nodes {
			want(t, "holders", s.holders(i), "")
		}
	})
}

// drift is the margin of a lease.
const drift = lease/100 + 2*time.Millisecond

// TestRepeatedRequestKeepsTheToken: also when the node that answers first has
// gone further, and never heard what the others agreed on.
func TestRepeatedRequestKeepsTheToken(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a := s.client()
		far := request("x", 1)
		far.Tokens = 1000
		s.nodes[2].Acquire(bg, far)
		s.nodes[2].Release(bg, refOf(far))
		a.links[2].On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(100*time.Millisecond))
		r := request("a", 1)
		token := s.hold(a, r).Token
		time.Sleep(time.Second)
		a.links[1].On(faultstore.Any, faultstore.Every, faultstore.DelayReply(50*time.Millisecond))
		want(t, "token of the repeated request", s.hold(a, r).Token, token)
		again := r
		again.ID = "b" + r.ID[1:]
		want(t, "token of a re-entry", s.hold(a, again).Token, token)
	})
}
