package redisfence_test

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/fence/redisfence"
)

// A list in Redis that several processes append to. Whoever was stopped for so
// long that it lost the lock is refused, and starts anew.
func Example() {
	appendTo := func(ctx context.Context, client rueidis.Client, lock *dlock.Mutex, element string) error {
		list := redisfence.New(client, "list")
		for {
			hold, err := lock.LockContext(ctx)
			if err != nil {
				return err
			}
			elements, _, err := list.Get(ctx, hold.Token())
			if err == nil {
				err = list.Set(ctx, hold.Token(), elements+element+"\n")
			}
			hold.Unlock()
			if !errors.Is(err, fence.ErrStale) {
				return err
			}
		}
	}
	_ = appendTo
}
