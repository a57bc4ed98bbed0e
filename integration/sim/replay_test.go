package sim

import (
	"reflect"
	"testing"
)

// A seed stands for one plan, and another seed for another.
func TestPlanFollowsFromItsSeed(t *testing.T) {
	for seed := range uint64(200) {
		p := NewPlan(seed)
		if !reflect.DeepEqual(p, NewPlan(seed)) {
			t.Fatalf("seed %d draws two plans", seed)
		}
		if reflect.DeepEqual(p.Tasks, NewPlan(seed+1).Tasks) {
			t.Fatalf("seeds %d and %d draw the same", seed, seed+1)
		}
		if n := len(p.Clients); n < 2 || n > 8 {
			t.Fatalf("seed %d: %d clients", seed, n)
		}
	}
}

// A kept history is judged as it was when it happened.
func TestKeptHistory(t *testing.T) {
	h, found := simulate(t, NewPlan(7))
	if found = append(found, Judge(h)...); len(found) > 0 {
		t.Fatal(found)
	}
	h.claimTwice()
	want := Judge(h)
	if len(want) == 0 {
		t.Fatal("nothing is wrong with two owners of one token")
	}
	path, err := keep(t.TempDir(), h, want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := Judge(again); !reflect.DeepEqual(got, want) {
		t.Errorf("judged %v at first, and %v from the file", want, got)
	}
	if !reflect.DeepEqual(again.Plan, h.Plan) {
		t.Errorf("the plan is not the same in the file")
	}
	if _, err := load(path + ".gone"); err == nil {
		t.Error("a file that is not there can be loaded")
	}
}

// claimTwice gives the last claim to somebody else, too.
func (h *History) claimTwice() {
	c := *h.Claims[len(h.Claims)-1]
	c.Owner = -1
	h.Claims = append(h.Claims, &c)
}
