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
// The entry keeps no try whose chore had to go.
func TestChoresAreBounded(t *testing.T) {
	c := &chores{working: true} // nobody does them
	var s Store
	e := &entry{t: newTable(1), left: make([][]*try, 1)}
	for i := range maxChores + 10 {
		job := chore{ref: store.Ref{ID: fmt.Sprint(i)}, entry: e, try: newTry("a")}
		e.left[0] = append(e.left[0], job.try)
		for range 2 {
			c.add(&s, &node{}, job)
		}
		if _, ok := c.jobs[fmt.Sprint(i)]; !ok {
			t.Fatalf("chore %d is not there", i)
		}
		if n := len(c.jobs); n != min(i+1, maxChores) {
			t.Fatalf("%d chores after %d were added, and at most %d", n, i+1, maxChores)
		}
		if n := len(e.left[0]); n != len(c.jobs) {
			t.Fatalf("%d tries are left, and %d chores", n, len(c.jobs))
		}
	}
}

// refuses answers each release with its error.
type refuses struct {
	store.Store
	err error
}

func (r refuses) Release(context.Context, store.Ref) error { return r.err }

// TestChoreEnds: a release is tried again only if its outcome is unknown, and a refusal confirms none.
func TestChoreEnds(t *testing.T) {
	var s Store
	s.work.base = t.Context()
	job := chore{ref: store.Ref{TTL: time.Second}, until: time.Now().Add(time.Hour)}
	type end struct{ done, gone bool }
	for err, want := range map[error]end{
		nil: {true, true}, store.ErrLost: {true, true}, store.ErrClosed: {true, false}, errors.New("no reply"): {},
		fmt.Errorf("a hash: %w", store.ErrForeignKey): {true, false},
	} {
		done, gone := new(chores).try(&s, &node{store: refuses{err: err}}, job)
		if got := (end{done, gone}); got != want {
			t.Errorf("%v: got %+v, want %+v", err, got, want)
		}
	}
}
