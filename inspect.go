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
func (c *Client) Inspect(ctx context.Context, name string) (state store.State, err error) {
	err = c.look(ctx, "inspect", name, func(ctx context.Context) (err error) {
		state, err = c.store.Inspect(ctx, name)
		return err
	})
	return state, err
}

// List returns the names that have live holders or waiters, in no order. It may read
// all that the store has. The errors are those of Inspect, and ErrUnsupported if the
// store is no [store.Lister].
func (c *Client) List(ctx context.Context) (names []string, err error) {
	lister, ok := c.store.(store.Lister)
	if !ok {
		return nil, c.look(ctx, "list", "", nil)
	}
	err = c.look(ctx, "list", "", func(ctx context.Context) (err error) {
		names, err = lister.List(ctx)
		return err
	})
	return names, err
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
func (c *Client) Break(ctx context.Context, name string) (broken int, err error) {
	breaker, ok := c.store.(store.Breaker)
	if !ok {
		return 0, c.look(ctx, "break", name, nil)
	}
	err = c.look(ctx, "break", name, func(ctx context.Context) (err error) {
		broken, err = breaker.Break(ctx, name)
		return err
	})
	return broken, err
}

// look makes one call of the store that takes part in no lock. call is nil if the store
// does not have the ability. A list has no name.
func (c *Client) look(ctx context.Context, op, name string, call func(context.Context) error) error {
	var err error
	if op != "list" {
		err = validName(name)
	}
	if err == nil {
		err = c.core.Look(ctx, func(ctx context.Context) error {
			if call == nil {
				return fmt.Errorf("%w: %T cannot %s", ErrUnsupported, c.store, op)
			}
			e := CallEvent{Op: op, Name: name, Names: min(len(name), 1)}
			observed(ctx, c.opts.Observer, &e, call)
			return e.Err
		})
	}
	if err != nil {
		return &Error{Op: op, Name: name, Err: err}
	}
	return nil
}

func validName(name string) error {
	if name == "" || len(name) > MaxNameLen {
		return fmt.Errorf("%w: %d bytes, 1 to %d are allowed", ErrInvalidName, len(name), MaxNameLen)
	}
	return nil
}
