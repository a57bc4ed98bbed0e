package model

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// misleading are two waiters that asked at the same time, of which the one that is told of its grant had asked first, and
// eight more of which nothing is known. Nothing tells of the order of the two before the end.
func misleading(told int) (all []porcupine.Operation) {
	add := func(s *Step, from, to int64) {
		all = append(all, porcupine.Operation{Input: s, Call: from, Return: to})
	}
	ask := func(id int) *Call { return &Call{Op: Acquire, ID: id, Owner: id, Queue: true} }
	got := ask(9)
	got.Outcome, got.Token, got.Holds = Held, 1, 1
	add(&Step{Kind: Answered, N: 9, Call: got}, 0, 1)
	add(&Step{Kind: Unanswered, N: 1, Call: ask(1)}, 2, 10)
	add(&Step{Kind: Unanswered, N: 2, Call: ask(2)}, 3, 11)
	const never = 1 << 62
	for id := 10; id < 18; id++ {
		add(&Step{Kind: Unanswered, N: id, Call: ask(id), Open: true}, 20, never)
		add(&Step{Kind: Expires, N: id, ID: id, Open: true}, 20, never)
	}
	add(&Step{Kind: Answered, N: 30, Call: &Call{Op: Release, ID: 9, Owner: 9, Outcome: Done}}, 30, 31)
	add(&Step{Kind: Told, ID: told, Token: 2}, 32, 33)
	add(&Step{Kind: Over}, never-1, never-1)
	return all
}

func TestFindSeesThroughWhatMisleadsPorcupine(t *testing.T) {
	const width = 300
	if Allows(misleading(2), time.Second) {
		t.Error("Porcupine decides this in a second; the test needs a harder history")
	}
	if !Find(misleading(2), width, time.Minute) {
		t.Error("no order found where the second waiter asked first")
	}
	if !Find(misleading(1), width, time.Minute) {
		t.Error("no order found where the first waiter asked first")
	}
	if Find(misleading(3), width, time.Minute) {
		t.Error("found an order in which one is granted who never asked")
	}
}

// What is forgotten of states is found again.
func TestFindForgets(t *testing.T) {
	f := &finder{
		operations: misleading(2), width: 300, memory: 1, ends: time.Now().Add(time.Minute),
		numbers: map[string]int{}, steps: map[[2]int]int{},
	}
	if order := f.find(); order == nil || !Allows(narrowed(f.operations, order), time.Minute) {
		t.Errorf("got the order %v", order)
	}
	if len(f.states) > f.width {
		t.Errorf("%d states are remembered", len(f.states))
	}
}

// An order is proof only if each operation happens within its time, once, and none is left out that has an answer.
func TestFindIsConfirmed(t *testing.T) {
	operations := misleading(1)[:3]
	for name, order := range map[string][]int{
		"out of its time": {1, 0, 2}, "there twice": {0, 1, 1, 2}, "left out": {0, 1},
	} {
		if narrowed(operations, order) != nil {
			t.Errorf("an order with an operation %s is accepted", name)
		}
	}
	if sequence := narrowed(operations, []int{0, 1, 2}); len(sequence) != 3 || !Allows(sequence, time.Minute) {
		t.Errorf("a good order is not accepted: %v", sequence)
	}
}
