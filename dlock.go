// Package dlock replaces [sync.Mutex] and [sync.RWMutex] with locks that hold
// between processes, over a store: Redis, etcd, a quorum of independent servers, or
// memory for tests and single processes.
//
//	client, err := dlock.New(memory.New(), nil)
//	...
//	err = client.Mutex("sku/4711").Do(ctx, func(ctx context.Context) error {
//		return reserve(ctx) // may take the same lock again
//	})
//
// # Holding
//
// A hold is a lease at the store that the client renews for as long as it is
// held. Should it be lost all the same, because the store cannot be reached or
// has lost its data, the holder is told before the store could grant the lock
// to anyone else: Hold.Done closes, the context of Do is cancelled, and
// Options.OnLost is called. Between the last confirmed request and the end of
// its lease a margin of 1 % + 2 ms is kept for clocks that run unequally.
//
// No lock service can stop a process that was paused for longer than its lease
// from going on where it was. Where that matters, send Hold.Token, which grows
// with every grant of a name to a writer, with each access to the resource, and let
// the resource refuse tokens lower than the highest it has seen; see package fence.
//
// # Reentrancy
//
// Locks nest by owner, and the owner travels in the context: Do, and
// Hold.Context, hand it to what is called inside. See [Owner] for taking it
// across processes. There are no goroutine ids involved: two goroutines with
// one context are one owner.
//
// # Waiting
//
// Waiters are served in the order in which they came to the store (a quorum of
// independent nodes keeps none), one of each process at a time, and are woken by a
// push, not by polling. Those of one process
// are served in their own order, and a writer's lock may pass from one to the next
// without asking the store, within the bounds of Options.LocalHandoffs.
package dlock

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// Client takes locks from one store. It is safe for concurrent use. One client
// a process and store is enough, and all that should re-enter each other's
// locks by context have to share it. Close it when it is no longer used.
type Client struct {
	store  store.Store
	opts   Options
	minTTL time.Duration
	log    *slog.Logger

	names    registry
	pushes   pushes
	cleaner  cleaner
	dog      *watchdog.Watchdog
	calls    calls
	waiters  atomic.Int64
	failing  atomic.Bool // the last batch of renewals had an unknown outcome
	closed   atomic.Bool // Close was called
	closing  chan struct{}
	unlisten func()
}

// New returns a client that takes its locks from s, with the defaults for nil
// opts. It makes no call of the store, so it does not find out whether a server
// can be reached; the first lock does. The store stays the caller's: Close
// does not close it, and several clients may share it.
//
// The error is an *Error with ErrInvalidTTL or ErrInvalidOption (also for a nil
// store).
func New(s store.Store, opts *Options) (*Client, error) {
	if isNil(s) {
		return nil, &Error{Op: "new", Err: fmt.Errorf("%w: the store is nil", ErrInvalidOption)}
	}
	if opts == nil {
		opts = &Options{}
	}
	minTTL := max(s.MinTTL(), shortestTTL)
	resolved, err := opts.resolve(minTTL)
	if err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	c := &Client{
		store:   s,
		opts:    resolved,
		minTTL:  minTTL,
		log:     resolved.Logger,
		closing: make(chan struct{}),
	}
	c.calls.base, c.calls.cancel = context.WithCancelCause(context.Background())
	c.cleaner.client = c
	c.dog, err = watchdog.New(watchdog.Config{
		Renew:   c.renew,
		Expired: c.expired,
		Timeout: resolved.timeout(resolved.TTL),
	})
	if err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	c.unlisten = s.Listen(c.pushes.deliver)
	return c, nil
}

// Mutex returns the lock of that name, which excludes everyone else's Mutex and
// RWMutex of the same name. It makes no call; a bad name or option surfaces
// when the lock is used. The value is cheap, and any number may exist for one
// name, but an Unlock has to be called on the value that was locked.
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{door{client: c, terms: c.terms(name, opts), mode: store.Exclusive}}
}

// RWMutex returns the readers' and writers' lock of that name. It shares the
// name with Mutex, which is its writers' side. All that is said of Mutex holds.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	t := c.terms(name, opts)
	return &RWMutex{
		write: door{client: c, terms: t, mode: store.Exclusive},
		read:  door{client: c, terms: t, mode: store.Shared},
	}
}
