package sim

import (
	"testing"
	"time"
)

// A quorum is told of the longest lease at the store, unless all are the same.
func TestLongestLease(t *testing.T) {
	const s = time.Second
	visits := func(ttl time.Duration) []Task { return []Task{{Visits: []Visit{{TTL: ttl}}}} }
	for name, tc := range map[string]struct {
		plan Plan
		want time.Duration
	}{
		"the same":           {Plan{Clients: []ClientPlan{{TTL: s, Rate: 1}, {TTL: s, Rate: 1}}, Tasks: visits(0)}, 0},
		"another client's":   {Plan{Clients: []ClientPlan{{TTL: s, Rate: 1}, {TTL: 2 * s, Rate: 1}}}, 2*s + 1},
		"a place":            {Plan{Clients: []ClientPlan{{TTL: s, WaitTTL: 4 * s, Rate: 1}}}, 4*s + 1},
		"a lock's own":       {Plan{Clients: []ClientPlan{{TTL: s, Rate: 1}}, Tasks: visits(3 * s)}, 3*s + 1},
		"by another clock":   {Plan{Clients: []ClientPlan{{TTL: s, Rate: 1}, {TTL: s, Rate: 0.5}}}, 2*s + 1},
		"by a quicker clock": {Plan{Clients: []ClientPlan{{TTL: s, Rate: 2}}}, 2*s + 1},
	} {
		if got := longestLease(&tc.plan); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
