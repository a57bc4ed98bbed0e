package model

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

type tokens uint64

func (k *tokens) Issue(n int) (uint64, int) { *k += tokens(n); return uint64(*k) - uint64(n) + 1, n }
func (k *tokens) Last() uint64              { return uint64(*k) }

// wantFreed wants nothing behind the ends of the lists: a record that is kept and used again
// would hold the texts of names that ended long ago.
func wantFreed(t *testing.T, what string, r *Record) {
	t.Helper()
	for _, list := range [][]entry{r.holds, r.queue} {
		for _, e := range list[len(list):cap(list)] {
			if e != (entry{}) {
				t.Errorf("%s: %+v is left in memory", what, e)
			}
		}
	}
	for _, g := range r.buried[len(r.buried):cap(r.buried)] {
		if g != (grave{}) {
			t.Errorf("%s: %+v is left in memory", what, g)
		}
	}
}

func TestFreedMemoryIsZeroed(t *testing.T) {
	full := func() (*Record, *Call) {
		r, c := new(Record), &Call{Tokens: new(tokens)}
		for _, id := range []string{"a", "b", "c"} {
			r.Acquire(c, store.Request{ID: id, Owner: id, Mode: store.Shared, TTL: 2, Tokens: 1}, id)
			r.Acquire(c, store.Request{ID: "w" + id, Owner: "w" + id, Queue: true, TTL: 3, WaitTTL: 3, Tokens: 1}, id)
			r.Release(c, store.Ref{ID: "g" + id, Bury: true, TTL: 2})
			r.Release(c, store.Ref{ID: "w" + id})
		}
		r.Acquire(c, store.Request{ID: "w", Owner: "w", Queue: true, TTL: 3, WaitTTL: 3, Tokens: 1}, "w")
		return r, c
	}
	for what, end := range map[string]func(*Record, *Call){
		"released": func(r *Record, c *Call) { r.Release(c, store.Ref{ID: "b"}) },
		"expired":  func(r *Record, c *Call) { c.Now = 2; r.Settle(c) },
		"broken":   func(r *Record, c *Call) { r.Break(c) },
		"reset":    func(r *Record, _ *Call) { r.Reset() },
	} {
		r, c := full()
		if len(r.holds) != 3 || len(r.queue) != 1 || len(r.buried) != 3 {
			t.Fatalf("%s: it begins with %+v", what, r)
		}
		end(r, c)
		wantFreed(t, what, r)
	}
}

// TestSmallIsUpToMaxKept: a record that has room for maxKept entries of each kind is kept.
func TestSmallIsUpToMaxKept(t *testing.T) {
	for what, grow := range map[string]func(r *Record, n int){
		"holds":  func(r *Record, n int) { r.holds = make([]entry, 0, n) },
		"queue":  func(r *Record, n int) { r.queue = make([]entry, 0, n) },
		"buried": func(r *Record, n int) { r.buried = make([]grave, 0, n) },
	} {
		for n, want := range map[int]bool{maxKept: true, maxKept + 1: false} {
			var r Record
			if grow(&r, n); r.Small() != want {
				t.Errorf("%s with room for %d: got %v, want %v", what, n, r.Small(), want)
			}
		}
	}
}

// TestRebaseOfMoments: the first provisional token is final afterwards, and an age stays what it is.
func TestRebaseOfMoments(t *testing.T) {
	r := Record{holds: []entry{{id: "a", token: 1000, deadline: 10, since: 4}, {id: "b", token: 999, deadline: 10}}}
	r.Rebase(1000, 5000, 5*time.Nanosecond)
	if h := r.holds[0]; h.token != 5000 || h.since != 9 {
		t.Errorf("got token %d since %d, want 5000 since 9", h.token, h.since)
	}
	if h := r.holds[1]; h.token != 999 || h.since != 0 {
		t.Errorf("got token %d since %d, want 999, and no moment", h.token, h.since)
	}
}
