package quorum_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// TestFault80UpgradeBesideAReaderOfOneNode: a reader that one node has kept, because it missed the release, refuses no
// upgrade for good: not while the other nodes are silent, and not when they answer.
func TestFault80UpgradeBesideAReaderOfOneNode(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		s.hold(a, shared(request("a", 1)))
		s.hold(b, shared(request("b", 1)))
		heal := b.cut(down, 0)
		s.release(b, shared(request("b", 1)))
		want(t, "holders at node 0", s.holders(0), "ab")
		silent := a.cut(down, 1, 2)
		s.refused(a, request("a", 2), quorum.ErrNoQuorum)
		silent()
		s.hold(a, request("a", 2))
		heal()
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
