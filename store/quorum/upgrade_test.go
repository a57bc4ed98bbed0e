package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// TestFault80UpgradeBesideAReaderOfOneNode: a reader that one node has kept, because it missed the release, refuses no
// upgrade for good: not while another node is silent, or both are, and not when they answer.
func TestFault80UpgradeBesideAReaderOfOneNode(t *testing.T) {
	for _, silent := range [][]int{{1}, {1, 2}} {
		inBubble(t, 3, func(s *site) {
			a, b := s.client(), s.client()
			s.hold(a, shared(request("a", 1)))
			s.hold(b, shared(request("b", 1)))
			heal := b.cut(down, 0)
			s.release(b, shared(request("b", 1)))
			want(t, "holders at node 0", s.holders(0), "ab")
			answer := a.cut(down, silent...)
			s.refused(a, request("a", 2), quorum.ErrNoQuorum)
			s.refused(a, waiting(request("a", 3)), quorum.ErrNoQuorum)
			answer()
			a.Release(bg, refOf(request("a", 3)))
			s.hold(a, request("a", 2))
			heal()
		})
	}
}

// TestTryWithinOwnLock: a waiter who has one node does not keep the holder from a nested hold, or only until a node
// answers that was silent. He is not told that another holds the lock.
func TestTryWithinOwnLock(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		heal := a.cut(down, 2)
		s.hold(a, request("a", 1))
		s.refused(b, waiting(request("b", 1)), nil)
		want(t, "holders at node 2", s.holders(2), "b")
		heal()
		answer := a.cut(faultstore.Mute(), 1)
		s.refused(a, request("a", 2), quorum.ErrNoQuorum)
		time.AfterFunc(lease/20, answer) // the timeout of the first round
		s.hold(a, request("a", 3))
	})
}

// TestFault80UpgradeByAMajority: a reader's hold that a node has because it missed the
// release is none that a writer of the same owner would upgrade. One that a majority has
// is, whichever majority.
func TestFault80UpgradeByAMajority(t *testing.T) {
	for name, x := range map[string]struct {
		readers  [2][]int // the nodes that cannot be reached when the owner, and another, begins to read
		released []int    // the nodes that miss the release; nil: he reads on
		want     error
	}{
		"of all nodes":            {want: store.ErrUpgrade},
		"with one node in common": {readers: [2][]int{{2}, {0}}, want: store.ErrUpgrade},
		"released":                {released: []int{}, want: store.ErrHeld},
		"released but at one":     {released: []int{2}, want: store.ErrHeld},
	} {
		for _, queue := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, 3, func(s *site) {
					a, b := s.client(), s.client()
					ra := shared(request("a", 1))
					healA, healB := a.cut(down, x.readers[0]...), b.cut(down, x.readers[1]...)
					s.hold(a, ra)
					s.hold(b, shared(request("b", 1)))
					healA()
					healB()
					if x.released != nil {
						for _, i := range x.released {
							a.links[i].On(faultstore.Release, faultstore.Every, down)
						}
						s.release(a, ra)
					}
					r := request("a", 2)
					r.Queue = queue
					wanted := x.want
					if queue && errors.Is(wanted, store.ErrHeld) {
						wanted = nil
					}
					s.refused(a, r, wanted)
				})
			})
		}
	}
}
