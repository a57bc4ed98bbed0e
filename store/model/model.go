// Package model is dlock's lock model as a state machine over one record: the
// holds, the queue and the buried ids of one name. It has no clock, no lock and
// no storage of its own. A store that keeps records loads one, calls a method,
// and keeps the result; the comment of package store says what each method
// decides.
//
// The present is an argument ([Call.Now]), tokens come from a [Counter], and
// wake-ups are results ([Call.Events]). Every method first removes what has
// expired at the present and promotes waiters, so a record never has to be
// looked after between two calls.
//
// A store keeps the contract with this package if it does three things:
//
//   - Load, call and save are one atomic step for the record and the counter.
//     No other call on the same name interleaves with it.
//   - Call.Now is read inside that step, after every wait for a lock. A present
//     that is older than the step revives holds that have expired.
//   - Events leave after the step is certain to last.
//
// [Record.AppendBinary] and [Record.UnmarshalBinary] translate a record into
// bytes and back; their comments give the format.
package model

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// Record is the state of one name. The zero Record is a free name. It is not
// safe for concurrent use. A copy shares memory with the original.
type Record struct {
	holds  []entry // oldest grant first
	queue  []entry // head first
	buried []grave
}

// entry is a hold or, in the queue, a waiter.
type entry struct {
	id, owner, label string
	handle           string // the handle that hears of a promotion
	mode             store.Mode
	tokens           int           // how many consecutive tokens the request asks for
	waitTTL          time.Duration // how long a promoted hold lasts until its first renewal
	token            uint64        // of a hold
	short            int           // of a hold: how many of the tokens are not reserved
	deadline         time.Duration // on the clock of Call.Now
	since            time.Duration // when it was granted, or queued as a waiter, on that clock; 0 if that is not known
}

// grave is an id that is refused until its deadline.
type grave struct {
	id       string
	deadline time.Duration
}

// Call is one operation on a record: what goes into it beside its arguments,
// and the events that come out. A Call is for one operation; several records
// that change in one step may share it.
type Call struct {
	// Now is the present, as the time since some fixed moment. All calls on
	// the records of a store use the same clock, and it does not run backwards.
	Now time.Duration

	// Tokens issues the tokens of new grants.
	Tokens Counter

	// Events are the wake-ups that the call caused, in order. Each goes to the
	// sinks of one handle.
	Events []Event
}

// Counter issues tokens. One counter may serve many records.
type Counter interface {
	// Issue reserves n consecutive tokens, or fewer, and returns the first and
	// how many. Each is greater than all tokens issued before for the record.
	// With none left it returns 0, 0: the request that needs a token is then
	// not granted by this call.
	Issue(n int) (first uint64, reserved int)

	// Last returns the last token issued so far.
	Last() uint64
}

// Event is a wake-up for the handle that a request was queued through.
type Event struct {
	Handle string
	store.Event
}

// alive says whether an entry with that deadline is alive at the present.
func (c *Call) alive(deadline time.Duration) bool { return deadline > c.Now }

// settle removes what has expired, which is a removal like any other.
func (r *Record) settle(c *Call) {
	r.holds = living(r.holds, c)
	r.queue = living(r.queue, c)
	for i := len(r.buried) - 1; i >= 0; i-- {
		if !c.alive(r.buried[i].deadline) {
			last := len(r.buried) - 1
			r.buried[i] = r.buried[last]
			r.buried[last] = grave{}
			r.buried = r.buried[:last]
		}
	}
	r.promote(c)
}

// living removes the entries that have expired. It keeps the order and zeroes
// what it frees, so that a reused record keeps no strings alive.
func living(entries []entry, c *Call) []entry {
	kept := 0
	for i := range entries {
		if !c.alive(entries[i].deadline) {
			continue
		}
		if kept != i {
			entries[kept] = entries[i]
		}
		kept++
	}
	clear(entries[kept:])
	return entries[:kept]
}

// find returns the index of the entry with that id, or -1.
func find(entries []entry, id string) int {
	for i := range entries {
		if entries[i].id == id {
			return i
		}
	}
	return -1
}

// without removes the entry at index i, or none if i is -1.
func without(entries []entry, i int) []entry {
	if i < 0 {
		return entries
	}
	copy(entries[i:], entries[i+1:])
	entries[len(entries)-1] = entry{}
	return entries[:len(entries)-1]
}
