package locktest

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// TellsAges checks that the store says for how long a name is held: in Inspect, also
// after a renewal, and to a request that it queues. That the ages are right is a case of
// the conformance suite.
func TellsAges(t testing.TB, s store.Store, name string) {
	t.Helper()
	ctx, began := t.Context(), time.Now()
	hold, waiter := Request(name, 1), Request(name, 2)
	hold.TTL, waiter.WaitTTL = time.Minute, time.Minute
	if _, err := s.Acquire(ctx, hold); err != nil {
		t.Fatal(err)
	}
	const least = 20 * time.Millisecond
	inspected := func() bool {
		state, err := s.Inspect(ctx, name)
		return err == nil && len(state.Holders) == 1 && state.Holders[0].Age >= least
	}
	Poll(t, "Inspect says the age of a holder", Patience, inspected)
	if err := errors.Join(s.Renew(ctx, []store.Ref{RefTo(hold)})...); err != nil {
		t.Fatal(err)
	}
	if !inspected() {
		t.Error("a renewal makes the hold younger")
	}
	g, err := s.Acquire(ctx, waiter)
	if err != nil || g.Held || g.HeldFor < least || g.HeldFor > time.Since(began)+time.Second {
		t.Errorf("a queued request: got %+v, %v, want HeldFor of at least %v", g, err, least)
	}
	for _, r := range []store.Request{waiter, hold} {
		if err := s.Release(ctx, RefTo(r)); err != nil {
			t.Error(err)
		}
	}
}
