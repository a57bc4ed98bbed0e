package localqueue

import (
	"testing"

	"github.com/dlock-go/dlock/store"
)

func TestGrant(t *testing.T) {
	run(t, []scenario{
		{"on the goroutine of the asker", "wA", "join 0, sendInline 0, grant 0 1", "g", ""},
		{"in the background", "wA", "join 0, sendInline 0, detach 0, grant 0 1", "g", ""},
		{"the next writer asks", "wA wA", "join 0, sendInline 0, join 1, grant 0 1", "ga", "wake 1"},
		{"all readers that follow", "rA rA rA", "join 0, join 1, join 2, sendInline 0, grant 0 3", "ggg", ""},
		{"fewer tokens than readers", "rA rA rA", "join 0, join 1, join 2, sendInline 0, grant 0 1", "gaf", "wake 1"},
		{"not readers with a place of their own", "rA rB", "join 0, join 1, sendInline 0, grant 0 2", "ga", ""},
		{"the writer behind the readers asks", "rA rA wA", "join 0, join 1, join 2, sendInline 0, grant 0 3", "gga", "wake 2"},
		{"the readers behind the writer", "wA rA rA", "join 0, join 1, join 2, sendInline 0, grant 0 1", "gaf", "wake 1"},
		{"a place that was kept, to nobody", "wA", "join 0, sendBackground 0, leave 0, grant 0 1", "i", ""},
		{"a grant of no use", "rA rA", "join 0, join 1, sendInline 0, detach 0, fail 0 0", "af", "wake 0"},
		{"a grant of no use to its asker", "rA rA", "join 0, join 1, sendInline 0, fail 0 0", "af", "wake 0"},
	})
}

// The second number of fail says how the request ends, see failures.
func TestFail(t *testing.T) {
	run(t, []scenario{
		{"the asker", "wA", "join 0, sendInline 0, fail 0 1", "l", "wake 0"},
		{"the asker, and the next waiter asks", "wA wA", "join 0, sendInline 0, join 1, fail 0 1", "la", "wake 0, wake 1"},
		{"all that follow", "rA rA", "join 0, join 1, sendBackground 0, fail 0 1", "ll", "wake 0, wake 1"},
		{"the first that follows, the next asks", "rA rA", "join 0, join 1, sendBackground 0, fail 0 3", "la", "wake 0, wake 1"},
		{"not a reader with a place of its own", "rA rB", "join 0, join 1, sendInline 0, fail 0 2", "la", "wake 0"},
		{"those behind too", "wA wA rA", "join 0, join 1, join 2, sendInline 0, fail 0 2", "lll", "wake 0, wake 1, wake 2"},
		{"only those behind that are concerned", "wA wA rA", "join 0, join 1, join 2, sendInline 0, fail 0 4", "alw", "wake 1, wake 0"},
		{"a place without waiters, and those behind", "wA", "join 0, sendBackground 0, leave 0, fail 0 2", "i", ""},
		{"a place that has gone", "wA wA", "join 0, join 1, sendInline 0, restart 0, fail 1 1", "da", ""},
		{"a place that has gone, and those behind", "wA wA wA", "join 0, join 1, join 2, sendInline 0, restart 0, fail 1 2", "dal", "wake 2"},
	})
}

func TestDiscard(t *testing.T) {
	run(t, []scenario{
		{"the next writer asks for itself", "wA wA", "join 0, sendBackground 0, leave 0, discard 0, join 1", "ia", ""},
		{"the next reader asks for itself", "rA rA", "join 0, sendBackground 0, leave 0, discard 0, join 1", "ia", ""},
	})
}

// Detach has the asker follow its own place, which goes on in the background.
func TestDetach(t *testing.T) {
	var q Queue
	first, second := Waiter{Mode: store.Shared, Kind: &kindA}, Waiter{Mode: store.Shared, Kind: &kindA}
	q.Join(&first)
	q.Join(&second)
	p := first.Place
	p.Phase = Inline
	if first.State != Asking || second.State != Following {
		t.Errorf("the waiters are %v and %v", first.State, second.State)
	}
	q.Detach(&first)
	if first.State != Following || second.State != Following || first.Place != p || second.Place != p {
		t.Errorf("waiters are %v and %v", first.State, second.State)
	}
	if p.Phase != Background || !p.Wanted() {
		t.Errorf("the place is in phase %d, wanted %v", p.Phase, p.Wanted())
	}
	if actions := q.Take(&first, Idle); len(actions) > 0 || second.Place != p {
		t.Errorf("the place went with its first asker: %v", actions)
	}
}

// A place has the mode and kind of the waiter that it was made for.
func TestPlaceOfAWaiter(t *testing.T) {
	for _, x := range profiles {
		var q Queue
		w := Waiter{Mode: x.mode, Kind: &x.kind}
		q.Join(&w)
		if p := w.Place; p.Mode != x.mode || *p.Kind != x.kind || p.Phase != Unsent || !p.Wanted() {
			t.Errorf("%v: the place is %+v", x, p)
		}
		if got := q.FirstOn(w.Place); got != &w {
			t.Errorf("%v: its follower is %v", x, got)
		}
	}
}

// A second place of a waiter does not overwrite the first, whose reply may come late.
func TestPlacesOfAWaiterDiffer(t *testing.T) {
	var q Queue
	w := Waiter{Mode: store.Exclusive, Kind: &kindA}
	q.Join(&w)
	first := w.Place
	first.Phase, first.Value = Inline, "first"
	q.End(first)
	if w.State != Asking || w.Place == first {
		t.Fatalf("the waiter is %v with the place %+v", w.State, w.Place)
	}
	if first.Phase != Gone || first.Value != "first" || w.Place.Value != nil {
		t.Errorf("places %+v and %+v", first, w.Place)
	}
	if q.FirstOn(first) != nil {
		t.Error("a waiter relies on the place that has gone")
	}
}

func TestReaderMayJoin(t *testing.T) {
	for _, tc := range []struct {
		waiters, events string
		want            bool
	}{
		{"rA", "handOver 0", true}, // nobody has joined
		{"rA", "join 0", true},
		{"rA rB rx", "join 0, join 1, join 2", true},
		{"wA", "join 0", false},
		{"rA wA", "join 0, join 1", false},
		{"rA wA", "join 0, join 1, leave 1", true},
		{"wA rA", "join 0, join 1", false},
		{"wA rA", "join 0, join 1, leave 0", true},
		{"wA", "join 0, leave 0", true},
		{"wA", "join 0, sendBackground 0, handOver 0", true},
	} {
		c := newCaller(parseWaiters(t, tc.waiters))
		for _, e := range parseEvents(t, tc.events) {
			c.apply(e)
		}
		if got := c.q.ReaderMayJoin(); got != tc.want {
			t.Errorf("%s after %s: %v, want %v", tc.waiters, tc.events, got, tc.want)
		}
	}
}
