package sample

import "testing"

// The edges are not tested.
func TestPrice(t *testing.T) {
	for _, c := range [][4]int{{2, 3, 1, 6}, {20, 3, 1, 40}, {20, 1, 1, 20}, {2, 3, 5, 10}} {
		if got := Price(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%v: got %d", c, got)
		}
	}
}
