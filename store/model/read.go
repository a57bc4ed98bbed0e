package model

import (
	"math"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Inspect reports holders and queue, and the last token of the counter. Like
// every call it removes what has expired and promotes, so the record may
// change and events may come out.
func (r *Record) Inspect(c *Call, name string) store.State {
	r.settle(c)
	return store.State{Name: name, Holders: describe(c, r.holds), Queue: describe(c, r.queue), Token: c.Tokens.Last()}
}

func describe(c *Call, entries []entry) (list []store.Entry) {
	for i := range entries {
		e := &entries[i]
		list = append(list, store.Entry{
			ID: store.Short(e.id), Owner: store.Short(e.owner), Mode: e.mode,
			Token: e.token, Remaining: e.deadline - c.Now, Label: e.label, Age: e.age(c),
		})
	}
	return list
}

// Empty says whether a record without holds, waiters and buried ids is left: a
// store deletes it.
func (r *Record) Empty() bool { return len(r.holds) == 0 && len(r.queue) == 0 && len(r.buried) == 0 }

// InUse says whether the name has live holds or waiters at that present.
func (r *Record) InUse(now time.Duration) bool {
	return latest(latest(math.MinInt64, r.holds), r.queue) > now
}

// Expires returns the moment from which on nothing in the record is alive. A
// store may delete the record then without a call.
func (r *Record) Expires() time.Duration {
	last := latest(latest(math.MinInt64, r.holds), r.queue)
	for i := range r.buried {
		last = max(last, r.buried[i].deadline)
	}
	return last
}

// Ends returns the first moment after now at which an entry dies: a hold, a waiter
// or a buried id. A store that learns the moment of a step only after the step finds out
// with it whether the step decided on an entry that was dead by then.
func (r *Record) Ends(now time.Duration) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, list := range [][]entry{r.holds, r.queue} {
		for i := range list {
			if d := list[i].deadline; d > now {
				first = min(first, d)
			}
		}
	}
	for i := range r.buried {
		if d := r.buried[i].deadline; d > now {
			first = min(first, d)
		}
	}
	return first
}

// latest is the last deadline among entries, or least if that is later.
func latest(least time.Duration, entries []entry) time.Duration {
	for i := range entries {
		least = max(least, entries[i].deadline)
	}
	return least
}

// maxKept is how many entries of each kind a record may have room for to be
// worth keeping.
const maxKept = 8

// Small says whether the record occupies little memory. A large record is
// better left to the garbage collector than reset and used again.
func (r *Record) Small() bool {
	return cap(r.holds) <= maxKept && cap(r.queue) <= maxKept && cap(r.buried) <= maxKept
}

// Reset makes the record a free name again and keeps its memory for the next
// name.
func (r *Record) Reset() {
	clear(r.holds)
	clear(r.queue)
	clear(r.buried)
	r.holds, r.queue, r.buried = r.holds[:0], r.queue[:0], r.buried[:0]
}

// Settle removes what has expired and promotes, as every call does first.
func (r *Record) Settle(c *Call) { r.settle(c) }

// Hold returns the token of the hold with that id, and how many of the tokens
// asked for it are short. ok is false if there is no such hold.
func (r *Record) Hold(id string) (token uint64, short int, ok bool) {
	if i := find(r.holds, id); i >= 0 {
		return r.holds[i].token, r.holds[i].short, true
	}
	return 0, 0, false
}

// Covers says whether a hold that is live at that present has the token, or has
// reserved it with its own.
func (r *Record) Covers(now time.Duration, token uint64) bool {
	for i := range r.holds {
		h := &r.holds[i]
		if h.deadline > now && h.token <= token && token-h.token < uint64(max(h.tokens-h.short, 1)) {
			return true
		}
	}
	return false
}

// Queued returns the ids of the waiters, head first.
func (r *Record) Queued() []string {
	ids := make([]string, len(r.queue))
	for i := range r.queue {
		ids[i] = r.queue[i].id
	}
	return ids
}
