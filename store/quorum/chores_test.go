package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// TestChoresAreBounded: the one that was added last stays, for it lasts longest. One that is added again is the same.
func TestChoresAreBounded(t *testing.T) {
	c := &chores{working: true} // nobody does them
	var s Store
	for i := range maxChores + 10 {
		for range 2 {
			c.add(&s, nil, chore{ref: store.Ref{ID: fmt.Sprint(i)}})
		}
		if _, ok := c.jobs[fmt.Sprint(i)]; !ok {
			t.Fatalf("chore %d is not there", i)
		}
		if n := len(c.jobs); n != min(i+1, maxChores) {
			t.Fatalf("%d chores after %d were added, and at most %d", n, i+1, maxChores)
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
	job := chore{ref: store.Ref{TTL: time.Second}, until: time.Now().Add(time.Hour)}
	for err, done := range map[error]bool{
		nil: true, store.ErrLost: true, store.ErrClosed: true, errors.New("no reply"): false,
		fmt.Errorf("a hash: %w", store.ErrForeignKey): true,
	} {
		if got := new(chores).try(&s, &node{store: refuses{err: err}}, job); got != done {
			t.Errorf("%v: done is %v, want %v", err, got, done)
		}
	}
}
