package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

// TestBrokenBeforeItsToken: a hold that is broken at nodes before they have given it the agreed token is asked for
// again. ErrLost would say that the id was buried.
func TestBrokenBeforeItsToken(t *testing.T) {
	for name, prepare := range map[string]func(s *site, a *client){
		"in the second round": func(s *site, _ *client) {
			far := request("y", 1)
			far.Name, far.Tokens = "other", 500
			s.nodes[1].Acquire(bg, far)
			s.ahead(0) // so no two nodes give one token
		},
		"in the second step of the votes": func(s *site, a *client) {
			s.ahead(0)
			other := request("x", 1)
			for _, n := range s.nodes[1:] {
				n.Acquire(bg, other)
			}
			s.refused(a, request("a", 8), store.ErrHeld)
			for _, n := range s.nodes[1:] {
				n.Release(bg, refOf(other))
			}
			// What node 0 gave is proposed to the others now.
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a := s.client()
				prepare(s, a)
				var raised atomic.Int64
				for i, link := range a.links {
					link.On(faultstore.RaiseToken, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
						if raised.Add(1) <= 2 {
							s.nodes[i].Break(bg, "n")
						}
						return deliver(ctx)
					})
				}
				before, _ := a.Inspect(bg, "n")
				if g := s.hold(a, request("a", 1)); g.Token <= before.Token || raised.Load() < 2 {
					t.Errorf("token %d after %d, and %d calls for it", g.Token, before.Token, raised.Load())
				}
				s.release(a, request("a", 1))
				time.Sleep(time.Second)
				s.nothingLeft()
			})
		})
	}
}
