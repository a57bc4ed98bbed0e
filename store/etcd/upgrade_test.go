package etcd_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// An upgrade that is refused has not waited, not even for a moment: a reader who
// tries just then would find a writer ahead of it. So nothing is written.
func TestUpgradeTakesNoPlace(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	admin := cluster.Client(t)
	s, _ := counted(t, cluster)
	ask := func(name string, n int, mode store.Mode, held bool) store.Request {
		t.Helper()
		r := locktest.Request(name, n)
		r.Mode = mode
		if g, err := s.Acquire(t.Context(), r); err != nil || g.Held != held {
			t.Fatalf("got %+v, %v", g, err)
		}
		return r
	}
	// With somebody waiting elsewhere there is a lease for places.
	ask("b", 1, store.Exclusive, true)
	ask("b", 2, store.Exclusive, false)

	reader := ask("a", 3, store.Shared, true)
	ask("a", 4, store.Shared, true)
	upgrade := locktest.Request("a", 5)
	upgrade.Owner = reader.Owner
	before, err := admin.Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), upgrade); !errors.Is(err, store.ErrUpgrade) {
		t.Fatalf("the upgrade: %v, want ErrUpgrade", err)
	}
	after, err := admin.Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	if n := after.Header.Revision - before.Header.Revision; n != 0 {
		t.Errorf("the upgrade wrote %d times", n)
	}
}
