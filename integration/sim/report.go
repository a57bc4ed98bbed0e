package sim

import (
	"fmt"
	"strings"
	"time"
)

// report adds up what many histories came to.
type report struct {
	histories, operations, calls, handOvers int
	localHandOvers                          int
	violations, undecided, void             int
	crossChecked                            int             // judged with open calls too
	planned                                 map[Kind]int    // histories whose plans have it
	effects                                 map[Kind]int    // calls and events that met it
	pairs                                   map[[2]Kind]int // histories
	scenes                                  map[Scene]int   // histories
	why                                     map[string]int  // of void ones
}

func newReport() *report {
	return &report{planned: make(map[Kind]int), effects: make(map[Kind]int), pairs: make(map[[2]Kind]int), scenes: make(map[Scene]int), why: make(map[string]int)}
}

// add counts a history in.
func (r *report) add(h *History, found []Violation) {
	r.histories++
	r.operations += h.Operations
	r.scenes[h.Plan.Scene]++
	r.calls += len(h.Calls)
	r.handOvers += h.handOvers()
	r.localHandOvers += h.localHandOvers()
	for _, v := range found {
		if v.Checker == "undecided" {
			r.undecided++
		} else {
			r.violations++
		}
	}
	if why := h.void(); why != "" {
		r.void++
		r.why[why]++
	}
	for _, f := range h.Plan.Faults {
		r.planned[f.Kind]++
	}
	if f := h.Plan.Faults; len(f) == 2 {
		r.pairs[[2]Kind{min(f[0].Kind, f[1].Kind), max(f[0].Kind, f[1].Kind)}]++
	}
	for kind, n := range h.Effects {
		r.effects[kind] += n
	}
}

// summary is a line of totals, and one for each kind of fault.
func (r *report) summary(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %d operations, %d violations, %d unknown, %d void, %.1f s (%.0f/s)\n",
		r.histories, r.operations, r.violations, r.undecided, r.void, took.Seconds(), float64(r.histories)/took.Seconds())
	fmt.Fprintf(&b, "%d calls of the store, %d hand-overs, %d of them within a client, %d pairs of faults, %d judged with open calls too; void: %v\n",
		r.calls, r.handOvers, r.localHandOvers, len(r.pairs), r.crossChecked, r.why)
	for _, s := range Scenes {
		fmt.Fprintf(&b, "%-13s %5d histories\n", s, r.scenes[s])
	}
	for _, k := range Kinds {
		fmt.Fprintf(&b, "%-13s in %5d histories, met %8d times\n", k, r.planned[k], r.effects[k])
	}
	return b.String()
}

// void says why a history proves nothing, or "".
func (h *History) void() string {
	if h.Operations < 100 {
		return "too few operations"
	}
	if h.handOvers() == 0 {
		return "no hand-over"
	}
	for _, f := range h.Plan.Faults {
		if h.Effects[f.Kind] == 0 {
			return "a fault without effect"
		}
	}
	return ""
}
