package property

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock/store"
)

// hold is what the store and the model both know of a grant.
type hold struct {
	label string
	mode  store.Mode
	token uint64
}

// checkStore, in fair weather: the store has exactly the holds that have live
// handles, a place for each call that has to have one, and nothing else.
func (w *world) checkStore(t *rapid.T) {
	for _, name := range w.names {
		if w.stuck(name) {
			t.Fatalf("%q: all wait and nobody is in their way; %s", name, w.situation())
		}
		s := w.inspect(t, name)
		w.checkHolders(t, name, s)
		w.checkPlaces(t, name, s)
	}
	w.checkNesting(t)
	w.checkMourning(t)
}

func (w *world) checkHolders(t *rapid.T, name string, s store.State) {
	handles := make(map[hold]int) // live
	again := make(map[string]bool)
	for _, h := range w.handles {
		switch {
		case h.name != name || h.state != held:
		case !w.broken[h.token]:
			handles[hold{h.client.label, h.mode, h.token}]++
		default:
			// Broken before its client knew of it, the id may have been granted
			// once more; then the client has the first token, of a late event.
			for _, k := range h.client.link.of(h.token, h.mode) {
				again[store.Short(k.ID)] = true
			}
		}
	}
	entries := make(map[hold]int)
	for _, e := range s.Holders {
		if again[e.ID] {
			continue
		}
		k := hold{e.Label, e.Mode, e.Token}
		// Nested handles share one entry, so there are no more of these.
		if entries[k]++; entries[k] > handles[k] {
			t.Fatalf("%q: the store has a hold that nobody has: %+v\n of %+v; %s", name, e, s.Holders, w.situation())
		}
	}
	for k := range handles {
		if entries[k] == 0 {
			t.Fatalf("%q: the store does not have %+v\n but %+v; %s", name, k, s.Holders, w.situation())
		}
	}
}

// checkPlaces: of the calls of one client that wait, explicit owners have a
// place each, and of the others the front of its line has one at least.
func (w *world) checkPlaces(t *rapid.T, name string, s store.State) {
	places := make(map[string]int)
	for _, e := range s.Queue {
		places[e.Label]++
	}
	for _, c := range w.clients {
		var waiting, explicit int
		for _, p := range w.waiting {
			if p.client == c && p.name == name {
				waiting++
				if p.explicit {
					explicit++
				}
			}
		}
		least := max(explicit, min(waiting, 1))
		if n := places[c.label]; n < least || n > waiting {
			t.Fatalf("%q: %d calls of %s wait, %d of them for explicit owners, with %d places; %s", name, waiting, c, explicit, n, w.situation())
		}
		delete(places, c.label)
	}
	if len(places) > 0 {
		t.Fatalf("%q: places of nobody: %v", name, places)
	}
}

// checkOrder: whoever got a lock has passed nobody whom it excludes and who had
// to come first. In the store's queue that is an explicit owner, who got a place
// when it called; in the line of a client, everyone of that client. Owners who
// hold already, or did, may pass them all, be it by the grant of a call that just
// gave up and is on its way back to the store.
func (w *world) checkOrder(t *rapid.T, h *handle) {
	if slices.ContainsFunc(w.handles, func(o *handle) bool {
		return o != h && o.who == h.who && o.name == h.name
	}) || slices.ContainsFunc(w.gaveUp, func(p *pending) bool { return p.who == h.who && p.name == h.name }) {
		return
	}
	for _, q := range w.waiting {
		first := q.explicit || q.client == h.client && h.who.client != nil
		if first && q.born < h.born && q.name == h.name && conflict(q.who, q.mode, h.who, h.mode) && w.quietSince(q.from) {
			t.Fatalf("%v came before %v", q, h)
		}
	}
}

// checkNesting: nobody waits for a lock that its owner holds. (It may if the hold
// was broken and only the client does not know yet.)
func (w *world) checkNesting(t *rapid.T) {
	for _, p := range w.waiting {
		if o := w.predict(p.who, p.party, p.mode); o.token != 0 && !w.broken[o.token] {
			t.Fatalf("%v waits, and its owner holds with token %d; %s", p, o.token, w.situation())
		}
	}
}

// checkGone: Close has said, in whatever weather, that nothing of c is left.
func (w *world) checkGone(t *rapid.T, c *client) {
	for _, name := range w.names {
		s := w.inspect(t, name)
		for _, e := range slices.Concat(s.Holders, s.Queue) {
			if e.Label == c.label {
				t.Fatalf("%q: Close of %s returned nil, but the store still has %+v", name, c, e)
			}
		}
	}
}

// checkMourning: OnLost was called once for each grant that was lost, with one
// of its handles. (An owner's grants that are told apart by nothing but their
// id have one call each.)
func (w *world) checkMourning(t *rapid.T) {
	seen := make(map[hold]bool)
	for _, h := range w.handles {
		k := hold{h.client.label, h.mode, h.token}
		if h.state != lost || seen[k] {
			continue
		}
		seen[k] = true
		calls := 0
		w.mu.Lock()
		for _, o := range w.handles {
			if (k == hold{o.client.label, o.mode, o.token}) {
				calls += w.mourned[o.Hold]
			}
		}
		w.mu.Unlock()
		if most := len(h.client.link.of(h.token, h.mode)); calls < 1 || calls > most {
			t.Fatalf("%v was lost; OnLost was called %d times for it", h, calls)
		}
	}
}
