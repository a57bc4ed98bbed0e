package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/dlock-go/dlock/store"
)

// refusals are what a server says that did not apply a call and will not apply the next one either. An invalid
// auth token is not among them: the client gets a new one by itself.
var refusals = []error{
	rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound,
	rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps,
}

// outcome turns what the client returned into what the contract says: a sentinel for "certainly not", anything
// else for unknown.
func (s *Store) outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case isSentinel(err):
		return err
	case isRefusal(err):
		return fmt.Errorf("etcd: %w: %w", store.ErrRefused, err)
	case s.ctx.Err() != nil:
		// Not ErrClosed, which says that nothing has been done: the server may have done it.
		return fmt.Errorf("etcd: the store was closed during the call: %v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("etcd: %w", err)
}

func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}

func isSentinel(err error) bool {
	sentinels := []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed}
	return slices.ContainsFunc(sentinels, func(sentinel error) bool { return errors.Is(err, sentinel) })
}

func isLeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
