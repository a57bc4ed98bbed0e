package conformance

import (
	"strings"
	"testing"
)

// TestFault120PresentReadBeforeTheWait: a store that reads its present before it waits takes a dead
// hold for a living one. The suite fails it, and names the sentence of the contract that it breaks.
func TestFault120PresentReadBeforeTheWait(t *testing.T) {
	reports := failures(t, "the present is read before the wait")
	for _, name := range []string{"stall/renewal that waited beyond its lease", "stall/request that waited beyond its lease"} {
		if !strings.Contains(reports[name], saysPresent) {
			t.Errorf("%s: reported %q, want a failure that quotes %q", name, reports[name], saysPresent)
		}
	}
}
