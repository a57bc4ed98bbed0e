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
	return askStore(ctx, c, "inspect", name, func(ctx context.Context) (store.State, error) {
		return c.store.Inspect(ctx, name)
	})
}

// List returns the names that have live holders or waiters, in no order. It may read
// all that the store has. StoreTimeout bounds the whole List with all its requests. If
// there are so many names that it ends with ErrUnavailable, raise StoreTimeout. The
// errors are those of Inspect, and ErrUnsupported if the store is no [store.Lister].
func (c *Client) List(ctx context.Context) (names []string, err error) {
	var list func(context.Context) ([]string, error)
	if lister, ok := c.store.(store.Lister); ok {
		list = lister.List
	}
	return askStore(ctx, c, "list", "", list)
}

// Break takes the lock away from all its holders, of whatever process, and returns
// how many holds it removed. It is for operators: nothing in dlock calls it by
// itself. The next waiter is granted at once, while the old holders still work. They learn
// of it with their next renewal, up to a third of the TTL later, or without renewal when
// their lease ends. A resource that checks tokens refuses them as soon as it has seen
// the next token.
//
// The errors are those of Inspect, and ErrUnsupported if the store is no
// [store.Breaker]. After ErrUnavailable the holds may have been removed, so it is safe
// to call Break again only as long as no new holder may be harmed.
func (c *Client) Break(ctx context.Context, name string) (broken int, err error) {
	breaker, ok := c.store.(store.Breaker)
	if !ok {
		return askStore[int](ctx, c, "break", name, nil)
	}
	return askStore(ctx, c, "break", name, func(ctx context.Context) (int, error) { return breaker.Break(ctx, name) })
}

// askStore makes one call of the store that takes part in no lock. call is nil if the store
// does not have the ability. A list has no name.
func askStore[T any](
	ctx context.Context, c *Client, op, name string, call func(context.Context) (T, error),
) (result T, err error) {
	if op != "list" {
		err = validName(name)
	}
	if err == nil {
		err = c.core.AskStore(ctx, func(ctx context.Context) error {
			if call == nil {
				return fmt.Errorf("%w: %T cannot %s", ErrUnsupported, c.store, op)
			}
			e := CallEvent{Op: op, Name: name, Names: min(len(name), 1)}
			observed(ctx, c.opts.Observer, &e, func(ctx context.Context) (err error) {
				result, err = call(ctx)
				return err
			})
			return e.Err
		})
	}
	if err != nil {
		err = &Error{Op: op, Name: name, Err: err}
	}
	return result, err
}
