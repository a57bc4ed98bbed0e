package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// The errors that this package adds to those of the store. They are bare; the
// public package wraps them once.
var (
	ErrNotHeld        = errors.New("lock is not held")
	ErrTooManyWaiters = errors.New("too many waiters")
	ErrTooManyHolds   = errors.New("too many nested holds")

	// ErrLostOuter is store.ErrLost for re-entry into a lost hold: no retry can help.
	ErrLostOuter = fmt.Errorf("%w: re-entry into a lost hold, unlock all of its handles first", store.ErrLost)
	// errUnlocked is ErrNotHeld for a second Unlock.
	errUnlocked = fmt.Errorf("%w: this Hold was unlocked before", ErrNotHeld)
	// ErrClosedHold is what a hold ends with that Close released.
	ErrClosedHold = fmt.Errorf("%w: Client.Close has released it, %w", ErrNotHeld, request.ErrClosed)
)

// The causes of a loss. Each is store.ErrLost.
var (
	ErrDeadline   = fmt.Errorf("%w: deadline passed without a confirmed renewal", store.ErrLost)
	ErrFixedEnded = fmt.Errorf("%w: its lease ran out and is not renewed", store.ErrLost)
	ErrMaxHold    = fmt.Errorf("%w: MaxHold reached", store.ErrLost)
	ErrGone       = fmt.Errorf("%w: the store says it is gone", store.ErrLost)
)

// lossCauses lists them in the order of Client.lost.
var lossCauses = [...]error{ErrDeadline, ErrFixedEnded, ErrMaxHold, ErrGone}

// ended is why a call with ctx cannot go on, with the cause of that if it says more. It
// runs other people's code, so no mutex is held.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// isUnavailable reports that the store was silent for too long.
func isUnavailable(err error) bool { return errors.Is(err, request.ErrUnavailable) }
