package etcd_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
)

// An ask that was sent in time is answered when the time of its place is up, for
// the server stood still. Whoever is told then that it waits does wait: its place
// is not taken away by the end that had been ordered before the answer came.
func TestPlaceOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	holder, waiter := open(t, cluster.URL()), open(t, cluster.URL())
	first, second := locktest.Request("a", 1), locktest.Request("a", 2)
	first.TTL = time.Minute
	if g, err := holder.Acquire(t.Context(), first); err != nil || !g.Held {
		t.Fatalf("got %+v, %v", g, err)
	}
	for round := range 2 {
		if g, err := waiter.Acquire(t.Context(), second); err != nil || g.Held {
			t.Fatalf("got %+v, %v", g, err)
		}
		asked := time.Now()
		cluster.Members[0].Pause()
		answered := make(chan error, 1)
		time.Sleep(second.WaitTTL / 4)
		go func() {
			_, err := waiter.Acquire(t.Context(), second)
			answered <- err
		}()
		time.Sleep(time.Until(asked.Add(second.WaitTTL + 100*time.Millisecond)))
		cluster.Members[0].Resume()
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(second.WaitTTL / 4); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			state, err := holder.Inspect(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if len(state.Queue) != 1 {
				t.Fatalf("round %d: the queue is %+v after it was told that it waits", round, state.Queue)
			}
		}
	}
}
