// Package dlock replaces [sync.Mutex] and [sync.RWMutex] with locks that hold
// between processes. A store keeps them: Redis, etcd, PostgreSQL, ZooKeeper, a quorum of
// independent servers, or memory for tests and single processes.
//
//	client, err := dlock.New(memory.New(), nil)
//	...
//	err = client.Mutex("sku/4711").Do(ctx, func(ctx context.Context) error {
//		return reserve(ctx) // may take the same lock again
//	})
//
// # Holding
//
// A hold has a lease at the store; nested holds share one. The client renews it for as
// long as it is held. A hold can still be lost. If the store cannot be reached for too
// long, the holder is told before the store can grant the lock to another owner. If the
// store has lost its data, or an operator broke the lock, the next renewal tells the
// holder. A hold that is not renewed any more, by WithoutRenewal or MaxHold, tells of it at
// its end. Then Hold.Done closes, the context of Do is cancelled, and Options.OnLost is
// called. The client ends a hold 1 % and 2 ms before its lease ends at the store, because
// clocks run at different rates.
//
// No lock service can stop a process that was paused for longer than its lease
// from going on where it was. Where that matters, send a token with each access to
// the resource: [Hold.Token], or [TokenFor] inside Do. Let the resource refuse tokens
// lower than the highest it has seen. Package fence shows how.
//
// # Reentrancy
//
// Locks nest by owner, and the context carries the owner: the contexts of Do and of
// Hold.Context have it. See [Owner] for taking it across processes.
// Goroutine ids play no part: two goroutines with one context are one owner.
//
// # Waiting
//
// Waiters are served in the order in which they came to the store. (A quorum of
// independent servers keeps no order.) Of each process the first one waits there, and the
// others behind it. Owners from [NewOwner] and nested calls wait at the store by themselves.
// A message wakes a waiter. In case it is lost, the waiter also asks at each third of
// Options.WaitTTL. Between waiters of one process the lock may pass without a call of the
// store, within the bounds of Options.LocalHandoffs.
package dlock

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/store"
)

// Client takes locks from one store. It is safe for concurrent use. One client for
// a process and store is enough; calls that re-enter each other's locks by context
// have to share it. Close it when it is no longer used.
type Client struct {
	core   *core.Client
	store  store.Store
	opts   Options
	minTTL time.Duration
	log    *slog.Logger
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
	c := &Client{store: s, opts: resolved, minTTL: minTTL, log: resolved.Logger}
	if resolved.Observer != nil {
		s = &observedStore{s, resolved.Observer}
	}
	cfg := core.Config{
		Store:      s,
		Timeout:    resolved.timeout(resolved.TTL),
		Renewal:    resolved.timeout(MaxTTL),
		MaxWaiters: resolved.MaxWaiters,
		SlowWait:   resolved.SlowWait,
		Log:        resolved.Logger,
	}
	if onLost := resolved.OnLost; onLost != nil {
		cfg.OnLost = func(h *core.Handle) { onLost(h.Value.(*Hold)) }
	}
	if c.core, err = core.New(cfg); err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	return c, nil
}

// Mutex returns the lock with this name. It excludes the holders of every other Mutex
// and RWMutex with the same name. Mutex makes no call of the store; calls of the lock
// return the error of a bad name or option. The value is cheap, and any number may
// exist for one name, but Unlock belongs to the value that was locked.
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{c.locker(c.config(name, opts), store.Exclusive)}
}

// RWMutex returns the lock with this name for readers and writers. A Mutex with the
// same name is its writer's side. All that is said of Mutex holds.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	cfg := c.config(name, opts)
	return &RWMutex{write: c.locker(cfg, store.Exclusive), read: c.locker(cfg, store.Shared)}
}

func (c *Client) locker(cfg *lockConfig, mode store.Mode) locker {
	return locker{client: c, config: cfg, mode: mode, held: new(heldLists)}
}

// Close ends the client. Calls that wait return ErrClosed, and later calls return it
// at once. Holds are released: their handles end with an error that matches
// ErrNotHeld and ErrClosed, and their contexts are cancelled.
//
// Close returns when the store has confirmed the releases, or after twice
// StoreTimeout. Then it returns an *Error with ErrUnavailable, and what is not
// confirmed is left to its lease. Calls of the store that Close cuts may delay it
// until they return. Afterwards nothing of the client runs but reports of losses: calls of
// OnLost, of the logger and of Observer.EndHold. The store is not closed. A second
// Close waits for the first one and returns nil.
func (c *Client) Close() error {
	if err := c.core.Close(); err != nil {
		return &Error{Op: "close", Err: err}
	}
	return nil
}
