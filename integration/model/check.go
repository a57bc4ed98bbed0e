package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what Porcupine makes of the operations of one name.
type Verdict string

// Undecided is no better than Illegal.
const (
	Legal     Verdict = "legal"
	Illegal   Verdict = "illegal"
	Undecided Verdict = "undecided"
)

// Check has Porcupine decide within a bound of time whether the operations of one
// name, the inputs of which are Steps, have an order that the model allows. Of
// those that have none it says how far the longest order goes.
func Check(operations []porcupine.Operation, bound time.Duration) (v Verdict, stuck string) {
	switch porcupine.CheckOperationsTimeout(lockModel(), operations, bound) {
	case porcupine.Ok:
		return Legal, ""
	case porcupine.Illegal:
		return Illegal, describe(operations, bound)
	}
	return Undecided, ""
}

// Allows reports whether an order is found within the bound.
func Allows(operations []porcupine.Operation, bound time.Duration) bool {
	return porcupine.CheckOperationsTimeout(lockModel(), operations, bound) == porcupine.Ok
}

// describe says where the longest order ends that the model allows.
func describe(operations []porcupine.Operation, bound time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(lockModel(), operations, bound)
	var longest []porcupine.Operation
	for _, o := range info.PartialLinearizationsOperations()[0] {
		if len(o) > len(longest) {
			longest = o
		}
	}
	placed := make(map[*Step]bool)
	state := any(new(lockState))
	for _, o := range longest {
		placed[o.Input.(*Step)] = true
		_, state = state.(*lockState).step(o.Input.(*Step))
	}
	text := fmt.Sprintf("%d of %d operations can be placed, until %+v", len(longest), len(operations), *state.(*lockState))
	rest := slices.DeleteFunc(slices.Clone(operations), func(o porcupine.Operation) bool { return placed[o.Input.(*Step)] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range rest[:min(len(rest), 4)] {
		text += fmt.Sprintf("; then %v, called at %d", o.Input, o.Call)
	}
	return text
}
