package sim

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

// What cannot end is a violation of its history, not the end of the program.
func TestLeftGoroutineIsFound(t *testing.T) {
	for name, x := range map[string]struct {
		what func()
		want string
	}{
		"left behind": {func() { go func() { select {} }() }, "blocked goroutines remain"},
		"deadlock":    {func() { select {} }, "all goroutines in bubble are blocked"},
	} {
		found := inBubble(t, x.what)
		if len(found) != 1 || !strings.Contains(found[0].What, x.want) {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// Close may end a hold between the grant and the return of the call.
func TestHoldThatCloseHasEndedIsNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := dlock.New(memory.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		h := newHistory(Plan{})
		for _, closed := range []bool{false, true} {
			hold, err := client.Mutex("a").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if closed {
				client.Close()
			}
			x := &held{hold: hold, claim: new(Claim)}
			h.claimed(x)
			h.given(x)
			hold.Unlock()
		}
		if len(h.Claims) != 1 {
			t.Errorf("%d claims, want the first alone", len(h.Claims))
		}
	})
}

// After a stop a store may answer thousands of names in one nanosecond, twice.
func TestManyMomentsInOneNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(Plan{})
		var last Moment
		for range 10 * manyNames { // each answer makes some five
			now := h.now()
			if now <= last {
				t.Fatalf("moment %d after %d", now, last)
			}
			last = now
		}
	})
}

// A history that proves nothing says why.
func TestVoid(t *testing.T) {
	h := byHand()
	for _, x := range []struct {
		why  string
		then func()
	}{
		{"too few operations", func() { h.Operations = 150 }},
		{"no hand-over", func() { h.claim(1, 0, 1, 2, 1); h.claim(2, 3, 4, 5, 2) }},
		{"", func() { h.Plan.Faults = []Fault{{Kind: Mute}} }},
		{"a fault without effect", func() { h.effect(Mute) }},
		{"", func() {}},
	} {
		if why := h.void(); why != x.why {
			t.Errorf("void says %q, not %q", why, x.why)
		}
		x.then()
	}
}
