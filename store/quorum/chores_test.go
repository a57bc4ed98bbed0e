package quorum

import (
	"context"
	"errors"
	"fmt"
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

// refuses answers each release with its error.
type refuses struct {
	store.Store
	err error
}

func (r refuses) Release(context.Context, store.Ref) error { return r.err }

// TestChoreEnds: a release is tried again only if its outcome is unknown.
func TestChoreEnds(t *testing.T) {
	var s Store
	s.work.base = t.Context()
	job := chore{store.Ref{TTL: time.Second}, time.Now().Add(time.Hour)}
	for err, done := range map[error]bool{
		nil: true, store.ErrLost: true, store.ErrClosed: true, errors.New("no reply"): false,
		fmt.Errorf("a hash: %w", store.ErrForeignKey): true,
	} {
		if got := new(chores).try(&s, &node{store: refuses{err: err}}, job); got != done {
			t.Errorf("%v: done is %v, want %v", err, got, done)
		}
	}
}
