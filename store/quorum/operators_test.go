package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// hung is a node that does not answer what operators ask.
type hung struct{ *memory.Store }

func (hung) Break(ctx context.Context, _ string) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (hung) List(ctx context.Context) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Inspect(ctx context.Context, _ string) (store.State, error) {
	<-ctx.Done()
	return store.State{}, ctx.Err()
}

// TestOperatorsBesideAHungNode: what a majority says is enough, within the time that a client gives the store.
func TestOperatorsBesideAHungNode(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			q, err := quorum.NewWithOptions(&quorum.Options{Own: true}, memory.New(), hung{memory.New()}, memory.New())
			if err != nil {
				t.Fatal(err)
			}
			c, err := dlock.New(q, &dlock.Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			h, err := c.Mutex("n").LockContext(bg)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			state, err := c.Inspect(bg, "n")
			if err != nil || len(state.Holders) != 1 {
				t.Errorf("TTL %v: Inspect: got %+v, %v", ttl, state, err)
			}
			if names, err := c.List(bg); err != nil || len(names) != 1 {
				t.Errorf("TTL %v: List: got %q, %v", ttl, names, err)
			}
			if n, err := c.Break(bg, "n"); err != nil || n != 1 {
				t.Errorf("TTL %v: Break: got %d, %v", ttl, n, err)
			}
			if took := time.Since(began); took > 400*time.Millisecond {
				t.Errorf("TTL %v: the three took %v", ttl, took)
			}
			h.Unlock()
			c.Close()
			q.Close()
		})
	}
}

// slow is a node that takes its time to break a lock.
type slow struct{ *memory.Store }

func (s slow) Break(ctx context.Context, name string) (int, error) {
	time.Sleep(90 * time.Millisecond)
	return s.Store.Break(ctx, name)
}

// TestOperatorsWaitForSlowNodes: a node that answers within 100 ms has its say.
func TestOperatorsWaitForSlowNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := memory.New()
		q, err := quorum.NewWithOptions(&quorum.Options{Own: true}, memory.New(), missing, slow{memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		if g, err := q.Acquire(bg, request("a", 1)); !g.Held || err != nil {
			t.Fatalf("got %+v, %v", g, err)
		}
		synctest.Wait()
		missing.Break(bg, "n")
		if n, err := q.Break(bg, "n"); n != 1 || err != nil {
			t.Errorf("got %d, %v, want the hold of the two nodes that have it", n, err)
		}
	})
}
