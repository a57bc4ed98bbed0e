package postgres

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// TestDecide: a decision on a record that was read is left to a transaction if an entry
// dies while the clock is in doubt, or if more than deadlines would change.
func TestDecide(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	holder := store.Request{Name: "n", Owner: "a", ID: "1", TTL: 10 * time.Second, WaitTTL: 10 * time.Second, Tokens: 1}
	waiter := store.Request{Name: "n", Owner: "b", ID: "2", TTL: 10 * time.Second, WaitTTL: 20 * time.Second, Tokens: 1, Queue: true}
	value := model.EncodeHold(nil, holder, "h", 5, 0, moment(start))
	var r model.Record
	if err := r.UnmarshalBinary(value); err != nil {
		t.Fatal(err)
	}
	r.Acquire(&model.Call{Now: moment(start), Tokens: &noTokens{}}, waiter, "h")
	value, _ = r.AppendBinary(nil)
	ask := func(r *model.Record, c *model.Call) { r.Acquire(c, waiter, "h") }
	for _, test := range []struct {
		what             string
		earliest, latest time.Duration
		do               func(*model.Record, *model.Call)
		ok               bool
		before           time.Duration
	}{
		{"all alive", 0, time.Millisecond, ask, true, time.Millisecond + maxLate},
		{"shortly before the holder dies", 9500 * time.Millisecond, 9600 * time.Millisecond, ask, true, 10 * time.Second},
		{"the holder may be dead", 9950 * time.Millisecond, 10050 * time.Millisecond, ask, false, 0},
		{"the holder is dead", 11 * time.Second, 11 * time.Second, ask, false, 0},
		{"released", 0, 0, func(r *model.Record, c *model.Call) { r.Release(c, store.Ref{Name: "n", ID: "1"}) }, false, 0},
		{"nothing is left", 0, 0, func(r *model.Record, c *model.Call) {
			r.Release(c, store.Ref{Name: "n", ID: "2"})
			r.Release(c, store.Ref{Name: "n", ID: "1"})
		}, false, 0},
	} {
		c, ok := decide("n", value, start.Add(test.earliest), start.Add(test.latest), test.do)
		if ok != test.ok {
			t.Errorf("%s: got %v, want %v", test.what, ok, test.ok)
		}
		if ok && (!c.since.Equal(start.Add(test.earliest)) || !c.before.Equal(start.Add(test.before))) {
			t.Errorf("%s: right from %v to %v, want from %v to %v", test.what, c.since.Sub(start), c.before.Sub(start), test.earliest, test.before)
		}
	}
	if _, ok := decide("n", []byte("a value of another program"), start, start, ask); ok {
		t.Error("a foreign value: got a decision")
	}
}

// TestPlacesAreBounded: a handle remembers a bounded number of places, and no record
// whose clock is not known exactly or that is long.
func TestPlacesAreBounded(t *testing.T) {
	var p places
	now := time.Now()
	for i := range 3 * maxPlaces {
		p.note(string(rune(i)), place{value: []byte("v"), sent: now, got: now})
	}
	if len(p.of) > maxPlaces {
		t.Errorf("%d places are remembered", len(p.of))
	}
	for what, known := range map[string]place{
		"slow": {value: []byte("v"), sent: now, got: now.Add(2 * maxDoubt)},
		"long": {value: make([]byte, maxValue+1), sent: now, got: now},
	} {
		p.note(what, known)
		if known, ok := p.get(what); !ok || known.value != nil {
			t.Errorf("%s: got %d bytes, %v, want the place without its record", what, len(known.value), ok)
		}
	}
	p.forget("slow")
	if _, ok := p.get("slow"); ok {
		t.Error("a place that was forgotten is there")
	}
}
