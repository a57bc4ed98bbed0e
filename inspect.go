package dlock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/store"
)

// Inspect returns the live holders and the waiters of one name, in all processes. A
// free name is an empty State and no error. Labels say which process holds; see
// Options.Label and [WithLabel]. The State is for people: it may be out of date when
// Inspect returns.
//
// ctx and StoreTimeout bound the call. The errors are in an *Error:
//
//   - the error of ctx, beside ErrUnavailable if the store was asked;
//   - ErrUnavailable with the store's error if it gave no usable answer;
//   - ErrClosed, ErrInvalidName, ErrForeignKey, ErrRefused.
func (c *Client) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := validName(name); err != nil {
		return store.State{}, &Error{Op: "inspect", Name: name, Err: err}
	}
	state, err := c.core.Inspect(ctx, name)
	if err != nil {
		return store.State{}, &Error{Op: "inspect", Name: name, Err: err}
	}
	return state, nil
}

// List returns the names that have live holders or waiters, in no order. It may read
// all that the store has. The errors are those of Inspect, and ErrUnsupported if the
// store is no [store.Lister].
func (c *Client) List(ctx context.Context) ([]string, error) {
	names, err := c.core.List(ctx)
	if err != nil {
		return nil, &Error{Op: "list", Err: err}
	}
	return names, nil
}

// Break takes the lock away from all its holders, of whatever process, and returns
// how many holds it removed. It is for operators: nothing in dlock calls it. The next
// waiter is granted at once, while the old holders still work. They learn of it with
// their next renewal, up to a third of the TTL later. A resource that checks tokens
// refuses them as soon as it has seen the next token.
//
// The errors are those of Inspect, and ErrUnsupported if the store is no
// [store.Breaker]. After ErrUnavailable the holds may have been removed, so it is safe
// to call Break again only as long as no new holder may be harmed.
func (c *Client) Break(ctx context.Context, name string) (int, error) {
	if err := validName(name); err != nil {
		return 0, &Error{Op: "break", Name: name, Err: err}
	}
	broken, err := c.core.Break(ctx, name)
	if err != nil {
		return 0, &Error{Op: "break", Name: name, Err: err}
	}
	return broken, nil
}

func validName(name string) error {
	if name == "" || len(name) > MaxNameLen {
		return fmt.Errorf("%w: %d bytes, 1 to %d are allowed", ErrInvalidName, len(name), MaxNameLen)
	}
	return nil
}
