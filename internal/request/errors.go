package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

// ErrClosed is store.ErrClosed for a client that was closed.
var ErrClosed = fmt.Errorf("the client is %w", store.ErrClosed)

// errStoreClosed is store.ErrClosed for a store that was closed before its client.
var errStoreClosed = fmt.Errorf("the store is %w, but its client is not: close the client first", store.ErrClosed)

// ErrUnavailable is what ends a request about which the store has confirmed nothing for too long.
var ErrUnavailable = errors.New("store is unavailable")

// ErrExpired is store.ErrLost for a grant that arrived after its lease had run out.
var ErrExpired = fmt.Errorf("%w: the grant arrived after its lease had run out", store.ErrLost)

// errNoReply is matched by the errors of calls that ended without a reply.
var errNoReply = errors.New("no reply from the store")

// WhichClosed makes an error of the store say that it was the store that was closed.
func WhichClosed(err error) error {
	if err == store.ErrClosed {
		return errStoreClosed
	}
	return err
}

// Unavailable is ErrUnavailable with its cause.
func Unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// Certain reports that a store's error says "certainly not" rather than unknown.
func Certain(err error) bool { return refusal(err) != nil }

// refusal is the sentinel that makes an error certain, or nil.
func refusal(err error) error {
	for _, sentinel := range []error{
		store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed,
	} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	return nil
}

// settled reports that after this answer to a release nothing of the id is left. A refusal leaves it
// where it was.
func settled(err error) bool {
	return err == nil || Certain(err) && !errors.Is(err, store.ErrRefused)
}

// certainError is an error of the store of which only the sentinel can be matched.
type certainError struct {
	text     string
	sentinel error
}

// Error returns the text of the store.
func (e *certainError) Error() string { return e.text }

// Unwrap returns the sentinel alone.
func (e *certainError) Unwrap() error { return e.sentinel }

// explain replaces the error of a context of our own by what it means, so that a context's error always
// is the caller's. A certain error stays certain: a store may wrap the error of a context of its own in
// it. ended says that the context of the call has ended, sent is when the call began.
func explain(err error, ended bool, sent time.Time) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	if sentinel := refusal(err); sentinel != nil {
		return &certainError{err.Error(), sentinel}
	}
	if !ended {
		return fmt.Errorf("the store gave up: %v", err)
	}
	if err == context.DeadlineExceeded || err == context.Canceled {
		return silentSince(sent)
	}
	return fmt.Errorf("%w: %v", silentSince(sent), err)
}

// silentSince says that a call that began then has no reply.
func silentSince(sent time.Time) error {
	silent := time.Since(sent)
	if silent > 10*time.Millisecond {
		silent -= silent % time.Millisecond
	}
	return fmt.Errorf("%w within %v", errNoReply, silent)
}
