package localqueue

import (
	"slices"
	"testing"

	"github.com/dlock-go/dlock/store"
)

// key describes the state of the queue: two callers with equal keys go on alike. It
// numbers places in the order in which the waiters refer to them. How a waiter has
// left the queue makes no difference.
func (c *caller) key() string {
	numbers := make(map[*Place]byte, 4)
	k := make([]byte, 0, 64)
	k = append(k, byte(c.joined))
	describe := func(k []byte, p *Place) []byte {
		shared := byte('-')
		if c.q.keepers[p.Mode] == p {
			shared = 's'
		}
		return append(k, byte(p.Phase), byte(p.Mode), byte(slices.Index(kinds, *p.Kind)), shared)
	}
	for _, w := range c.waiters {
		if w.State != Waiting && w.State != Following && w.State != Asking {
			k = append(k, 'x')
			continue
		}
		k = append(k, byte(w.State), w.first.used())
		if p := w.Place; p != nil {
			n, ok := numbers[p]
			if !ok {
				n = byte(len(numbers) + 1)
				numbers[p] = n
				k = describe(k, p)
			}
			k = append(k, n)
		}
	}
	var spare []string
	for _, p := range c.live {
		if numbers[p] == 0 {
			spare = append(spare, string(describe(nil, p)))
		}
	}
	slices.Sort(spare)
	for _, s := range spare {
		k = append(k, s...)
	}
	return string(k)
}

// used tells a place that was never used from one that was.
func (p *Place) used() byte {
	if p.Phase == Unsent && p.relying == 0 {
		return 0
	}
	return 1
}

// replay returns a caller after these events.
func replay(who []profile, path []event) *caller {
	c := newCaller(who)
	for _, e := range path {
		c.apply(e) // it was checked when the path was found
	}
	return c
}

// search goes through all states that waiters of these profiles can reach, and
// returns how many there are.
func search(t *testing.T, who []profile) int {
	seen := map[string]bool{newCaller(who).key(): true}
	paths := [][]event{nil}
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		for _, e := range replay(who, path).events() {
			c := replay(who, path)
			next := append(slices.Clip(path), e)
			if err := c.do(e); err != nil {
				t.Fatalf("waiters %v, events %v: %v", who, next, err)
			}
			if key := c.key(); !seen[key] {
				seen[key] = true
				paths = append(paths, next)
			}
		}
	}
	return len(seen)
}

// Every state that two or three waiters of all modes and kinds can reach keeps the
// rules of the queue.
func TestAllStatesOfThreeWaiters(t *testing.T) {
	states := 0
	for _, a := range profiles {
		for _, b := range profiles {
			for _, c := range profiles {
				if a.kind != kindB { // the kinds A and B are alike
					states += search(t, []profile{a, b, c})
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// Every state that four waiters of two kinds can reach keeps the rules of the queue.
func TestAllStatesOfFourWaiters(t *testing.T) {
	two := profiles[:4]
	states := 0
	for _, a := range two[:2] { // the kinds A and B are alike
		for _, b := range two {
			for _, c := range two {
				for _, d := range two[:2] {
					states += search(t, []profile{a, b, c, d})
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// Every state that five waiters can reach keeps the rules of the queue, for mixes in
// which waiters share places.
func TestAllStatesOfFiveWaiters(t *testing.T) {
	const w, r = store.Exclusive, store.Shared
	for _, who := range [][]profile{
		{{r, kindA}, {r, kindA}, {w, kindA}, {r, kindA}, {r, kindA}},
		{{r, kindA}, {r, kindB}, {r, kindA}, {r, kindB}, {w, kindA}},
		{{w, kindA}, {r, kindB}, {r, alone}, {r, kindB}, {w, kindA}},
	} {
		t.Logf("%v: %d states", who, search(t, who))
	}
}
