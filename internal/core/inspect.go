package core

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// Inspect asks the store once for the holders and waiters of a name.
func (c *Client) Inspect(ctx context.Context, name string) (state store.State, err error) {
	err = c.look(ctx, func(ctx context.Context) (err error) {
		state, err = c.config.Store.Inspect(ctx, name)
		return err
	})
	return state, err
}

// List asks the store once for the names in use.
func (c *Client) List(ctx context.Context) (names []string, err error) {
	lister, ok := c.config.Store.(store.Lister)
	err = c.look(ctx, func(ctx context.Context) (err error) {
		if !ok {
			return fmt.Errorf("%w: %T cannot list the names in use", store.ErrUnsupported, c.config.Store)
		}
		names, err = lister.List(ctx)
		return err
	})
	return names, err
}

// Break asks the store once to remove the holds of a name.
func (c *Client) Break(ctx context.Context, name string) (broken int, err error) {
	breaker, ok := c.config.Store.(store.Breaker)
	err = c.look(ctx, func(ctx context.Context) (err error) {
		if !ok {
			return fmt.Errorf("%w: %T cannot break a lock", store.ErrUnsupported, c.config.Store)
		}
		broken, err = breaker.Break(ctx, name)
		return err
	})
	return broken, err
}

// look makes one call of the store that takes part in no lock.
func (c *Client) look(ctx context.Context, call func(context.Context) error) error {
	busy := c.sender.Busy()
	busy.Add() // so that Close waits for it
	defer busy.Done()
	if c.isClosing.Load() {
		return request.ErrClosed
	}
	if err := ended(ctx); err != nil {
		return err
	}
	err := c.sender.Look(ctx, c.config.Timeout, call)
	switch over := ended(ctx); {
	case err == nil:
		return nil
	case isUnavailable(err) && c.isClosing.Load():
		return request.ErrClosed
	case isUnavailable(err) && over != nil:
		return fmt.Errorf("%w: %w", over, err)
	}
	return request.WhichClosed(err)
}
