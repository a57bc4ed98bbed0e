package sim

import "fmt"

// Violation is what a checker found.
type Violation struct {
	Checker string
	What    string
}

func (v Violation) String() string { return v.Checker + ": " + v.What }

func violation(checker, format string, args ...any) Violation {
	return Violation{checker, fmt.Sprintf(format, args...)}
}

// Judge returns everything that is wrong with a history. The model is asked
// only if nothing cheaper has found anything, for it may search for long in
// a history that has no order.
func Judge(h *History) []Violation {
	var found []Violation
	for _, what := range h.Complaints {
		found = append(found, violation("run", "%s", what))
	}
	for _, check := range []func(*History) []Violation{
		overlaps, claimTokens, twins, earlyGrants, lateGrants, abandoned,
		outlived, givenUp, disowned, overstayed,
	} {
		found = append(found, check(h)...)
	}
	if h.Plan.Nodes > 0 { // independent nodes keep no common order
		return found
	}
	for _, check := range []func(*History) []Violation{queueOrder, overslept, stale, prompt} {
		found = append(found, check(h)...)
	}
	if len(found) > 0 {
		return found
	}
	return linearizable(h, 0)
}

// JudgeOpen is for histories that Judge finds nothing wrong with: what has an
// order with all of the evidence has one with less. It proves the part of the
// checker that histories without evidence, those of real servers, depend on.
func JudgeOpen(h *History) []Violation { return linearizable(h, maxOpen) }
