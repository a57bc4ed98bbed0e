package localqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/store"
)

// parseWaiters reads waiters such as "wA rB rx": a writer of kind A, a reader of
// kind B, a reader that stands alone.
func parseWaiters(t *testing.T, text string) (who []profile) {
	t.Helper()
	modes := map[byte]store.Mode{'w': store.Exclusive, 'r': store.Shared}
	byName := map[byte]Kind{'A': kindA, 'B': kindB, 'x': alone}
	for _, s := range strings.Fields(text) {
		who = append(who, profile{modes[s[0]], byName[s[1]]})
	}
	return who
}

// parseEvents reads events such as "join 0, grant 0 1".
func parseEvents(t *testing.T, text string) (list []event) {
	t.Helper()
	for _, s := range strings.Split(text, ",") {
		var name string
		var e event
		_, _ = fmt.Sscan(strings.TrimSpace(s), &name, &e.n, &e.arg) // numbers that are left out are 0
		i := slices.Index(opNames, name)
		if i < 0 {
			t.Fatalf("no event %q", s)
		}
		e.op = op(i)
		list = append(list, e)
	}
	return list
}

// states has one letter for each waiter: idle, waiting, following, asking, granted,
// lost with an error, direct.
func (c *caller) states() string {
	var b strings.Builder
	for _, w := range c.waiters {
		b.WriteByte("iwfagld"[w.State])
	}
	return b.String()
}

// describe tells the actions of the last event.
func (c *caller) describe() string {
	var list []string
	for _, a := range c.actions {
		if a.Wake != nil {
			list = append(list, fmt.Sprintf("wake %v", a.Wake.Value))
		}
		if a.Unwanted != nil {
			list = append(list, "unwanted")
		}
	}
	return strings.Join(list, ", ")
}

// scenario is what becomes of waiters after some events.
type scenario struct {
	name, waiters, events string
	states                string // after the last event; see caller.states
	actions               string // of the last event
}

func run(t *testing.T, list []scenario) {
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			c := newCaller(parseWaiters(t, s.waiters))
			for _, e := range parseEvents(t, s.events) {
				if err := c.do(e); err != nil {
					t.Errorf("%v: %v", e, err)
				}
			}
			if got := c.states(); got != s.states {
				t.Errorf("states %s, want %s", got, s.states)
			}
			if got := c.describe(); got != s.actions {
				t.Errorf("actions %q, want %q", got, s.actions)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	run(t, []scenario{
		{"a writer in an empty queue asks", "wA", "join 0", "a", ""},
		{"a reader in an empty queue asks", "rA", "join 0", "a", ""},
		{"a writer behind a writer waits", "wA wA", "join 0, join 1", "aw", ""},
		{"a reader behind a writer waits", "wA rA", "join 0, join 1", "aw", ""},
		{"a writer behind a reader waits", "rA wA", "join 0, join 1", "aw", ""},
		{"a reader behind a reader follows", "rA rA", "join 0, join 1", "af", ""},
		{"a reader of another kind asks", "rA rB rB", "join 0, join 1, join 2", "aaa", ""},
		{"a reader that stands alone asks", "rx rx rA", "join 0, join 1, join 2", "aaa", ""},
		{"a reader does not follow one that stands alone", "rA rx rA", "join 0, join 1, join 2", "aaf", ""},
		{"a reader behind a waiting writer waits", "rA wA rA", "join 0, join 1, join 2", "aww", ""},
		{"a reader follows a request under way", "rA rA", "join 0, sendInline 0, join 1", "af", ""},
		{"a writer follows a place that was kept", "wA wA", "join 0, sendBackground 0, handOver 0, join 1", "gf", ""},
		{"no writer follows the place of a reader", "rA wA", "join 0, sendBackground 0, leave 0, join 1", "ia", ""},
	})
}

func TestLeave(t *testing.T) {
	run(t, []scenario{
		{"the only waiter", "wA", "join 0, leave 0", "i", ""},
		{"a waiter in the middle", "wA wA wA", "join 0, join 1, join 2, leave 1", "aiw", ""},
		{"the last waiter", "wA wA", "join 0, join 1, leave 1", "ai", ""},
		{"an asker: the next waiter asks", "wA wA", "join 0, join 1, leave 0", "ia", "wake 1"},
		{"an asker: its follower asks", "rA rA rA", "join 0, join 1, join 2, leave 0", "iaf", "wake 1"},
		{"an asker under way: its follower asks", "rA rA", "join 0, sendInline 0, join 1, leave 0", "ia", "wake 1"},
		{"the place in the background stays", "rA rA", "join 0, sendBackground 0, join 1, leave 0", "if", ""},
		{"the last follower", "rA", "join 0, sendBackground 0, leave 0", "i", "unwanted"},
		{"the next writer takes over the place", "wA wA", "join 0, sendBackground 0, join 1, leave 0", "if", ""},
		{"the next writer is of another kind", "wA wB", "join 0, sendBackground 0, join 1, leave 0", "ia", "wake 1, unwanted"},
		{"a writer between readers", "rA wA rA", "join 0, join 1, join 2, leave 1", "aif", ""},
		{"a writer between readers of two kinds", "rA wA rB", "join 0, join 1, join 2, leave 1", "aia", "wake 2"},
	})
}

func TestRestart(t *testing.T) {
	run(t, []scenario{
		{"an asker", "rA rA", "join 0, join 1, restart 0", "da", "wake 1"},
		{"a waiter behind the front", "wA wA", "join 0, join 1, restart 1", "ad", ""},
		{"the last follower", "wA", "join 0, sendBackground 0, restart 0", "d", "unwanted"},
		{"the next waiters come to the front", "wA rA rA", "join 0, join 1, join 2, restart 0", "daf", "wake 1"},
		{"its late grant finds no waiter", "rA rA", "join 0, join 1, sendInline 0, restart 0, grant 1 2", "da", ""},
	})
}

func TestHandOver(t *testing.T) {
	run(t, []scenario{
		{"an empty queue", "wA wA", "handOver 0", "ii", ""},
		{"a writer that follows", "wA", "join 0, sendBackground 0, handOver 0", "g", "unwanted"},
		{"a writer that is about to ask", "wA", "join 0, handOver 0", "g", ""},
		{"the next writer keeps the place", "wA wA", "join 0, sendBackground 0, join 1, handOver 0", "gf", ""},
		{"a writer whose request is under way", "wA", "join 0, sendInline 0, handOver 0", "a", ""},
		{"a writer of another kind", "wB", "join 0, sendBackground 0, handOver 0", "f", ""},
		{"a writer that stands alone", "wx", "join 0, sendBackground 0, handOver 2", "f", ""},
		{"a reader", "rA", "join 0, sendBackground 0, handOver 0", "f", ""},
		{"not past a reader", "rA wA", "join 0, join 1, sendBackground 0, handOver 0", "fw", ""},
		{"readers come after it", "wA rA rA", "join 0, sendBackground 0, join 1, join 2, handOver 0", "gaf", "wake 1, unwanted"},
	})
}
