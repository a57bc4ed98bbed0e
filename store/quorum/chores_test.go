package quorum

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// TestChoresAreBounded: also when one that failed comes back while others were added.
// Those that came last stay, for they last longest.
func TestChoresAreBounded(t *testing.T) {
	c := &chores{working: true} // nobody takes them
	job := chore{store.Ref{}, time.Now()}
	for range maxChores {
		c.add(nil, nil, job)
	}
	failed, ok := c.take()
	if !ok {
		t.Fatal("take: got none")
	}
	last := chore{store.Ref{ID: "last"}, time.Now()}
	for range 3 {
		c.add(nil, nil, last)
		c.put(failed)
		if n := len(c.list); n > maxChores {
			t.Fatalf("%d chores, more than %d", n, maxChores)
		}
	}
	for _, got := range c.list[maxChores-3:] {
		if got != last {
			t.Errorf("at the end: got %+v, want the last that were added", got)
		}
	}
}
