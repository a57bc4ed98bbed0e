package dlocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
)

// reserve stands for the code under test. It stops when it loses the lock.
func reserve(ctx context.Context, lock *dlock.Mutex) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		select {
		case <-time.After(time.Minute): // the work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// The work ends well although the first calls of the store fail.
func TestExampleFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		store.Fail(2)
		if err := reserve(t.Context(), client.Mutex("sku/4711")); err != nil {
			t.Error(err)
		}
	})
}

// The work stops when the store is away for longer than the lease.
func TestExampleOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		time.AfterFunc(time.Second, func() { store.Hang(dlocktest.All) })
		if err := reserve(t.Context(), client.Mutex("sku/4711")); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

// Another process has the lock, and the call gives up after its deadline.
func TestExampleBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		other, _ := store.Peer(t, nil)
		hold, err := other.Mutex("sku/4711").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Unlock()

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := reserve(ctx, client.Mutex("sku/4711")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}

// The holder learns that its hold is lost.
func TestExampleLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		hold, err := client.Mutex("sku/4711").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Unlock()
		store.Lose(hold)
		if err := hold.Err(); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}
