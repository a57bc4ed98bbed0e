package model_test

import (
	"math"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// Retry and the ages count from the present, wherever the clock of the store began.
func TestTimesOfALateClock(t *testing.T) {
	s := newSite(t)
	s.now = time.Hour
	s.hold(request("a", 1, store.Exclusive, false))
	s.now += time.Second
	g := s.queue(request("b", 1, store.Exclusive, true))
	want := store.Grant{Token: 1, Position: 1, Retry: lease - time.Second, HeldBy: "label of a", HeldFor: time.Second}
	if g != want {
		t.Errorf("got %+v, want %+v", g, want)
	}
	s.now += 2 * time.Second
	s.wantAges(3*time.Second, 2*time.Second)
	s.now = time.Hour - time.Minute // the clock is set back
	s.wantAges(1, 1)
}

func (s *site) wantAges(holder, waiter time.Duration) {
	s.t.Helper()
	s.call(func(c *model.Call) {
		state := s.record.Inspect(c, "name")
		if state.Holders[0].Age != holder || state.Queue[0].Age != waiter {
			s.t.Errorf("ages %v and %v, want %v and %v", state.Holders[0].Age, state.Queue[0].Age, holder, waiter)
		}
	})
}

// Ends is the first end after the present, Expires the last end of all.
func TestEndsAndExpires(t *testing.T) {
	s := newSite(t)
	if ends := s.record.Ends(0); ends != math.MaxInt64 {
		t.Errorf("a free name ends at %v", ends)
	}
	s.hold(request("a", 1, store.Exclusive, false))   // until 10 s
	s.queue(request("b", 1, store.Exclusive, true))   // until 4 s
	buried := request("c", 1, store.Exclusive, false) // until 12 s
	buried.TTL = 12 * time.Second
	s.release(buried, true)
	buried.ID, buried.TTL = "c-2", 2*time.Second
	s.release(buried, true)
	for _, test := range []struct{ now, want time.Duration }{
		{0, 2 * time.Second}, {2*time.Second - 1, 2 * time.Second}, {2 * time.Second, place},
		{place, lease}, {lease, 12 * time.Second}, {12 * time.Second, math.MaxInt64},
	} {
		if got := s.record.Ends(test.now); got != test.want {
			t.Errorf("the first end after %v: got %v, want %v", test.now, got, test.want)
		}
	}
	if got := s.record.Expires(); got != 12*time.Second {
		t.Errorf("expires at %v, want 12s", got)
	}
	// A buried id is no use of the name, nor is what ends at this moment.
	for now, want := range map[time.Duration]bool{lease - 1: true, lease: false} {
		if got := s.record.InUse(now); got != want {
			t.Errorf("in use at %v: got %v, want %v", now, got, want)
		}
	}
}

// A hold that has fewer tokens than it asked for covers those only.
func TestCoversOfShortHold(t *testing.T) {
	s := newSite(t)
	s.tokens.left = 2
	req := request("a", 1, store.Exclusive, false)
	req.Tokens = 5
	s.hold(req)
	for token, want := range []bool{false, true, true, false} {
		if got := s.record.Covers(s.now, uint64(token)); got != want {
			t.Errorf("token %d: got %v, want %v", token, got, want)
		}
	}
}
