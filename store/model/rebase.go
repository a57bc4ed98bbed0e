package model

import "time"

// Rebase is for a store that learns the number of a step only after the step: it
// issues provisional tokens from least on, keeps them in the record, and calls
// Rebase when it loads the record again. Each token t that is least or greater
// becomes base + (t - least). Each moment moves by moved.
func (r *Record) Rebase(least, base uint64, moved time.Duration) {
	for _, list := range [][]entry{r.holds, r.queue} {
		for i := range list {
			e := &list[i]
			if e.token >= least {
				e.token = base + (e.token - least)
			}
			e.deadline += moved
			if e.since != 0 {
				e.since += moved
			}
		}
	}
	for i := range r.buried {
		r.buried[i].deadline += moved
	}
}
