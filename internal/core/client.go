// Package core runs lock calls: re-enter a lock that the owner has, queue inside
// the process, ask the store, hold, hand over, lose and release.
//
// The objects of one name, from the user's handle to the store:
//
//	Handle      one successful call of a user; nested ones share an ownerHold
//	ownerHold   one owner's turn with a hold at the store
//	place       one request at the store, and the hold that it becomes; owners of this
//	            process have it one after another (writers) or together (readers)
//	nameState   everything that this process knows of a name: owners, queue, places
//	Call        one lock call that is under way: it waits, or asks for its place
//
// The mutex of a shard guards all of that for its names. No call of the store, no
// callback and no wait happens under it.
package core

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// Config is what New needs. All fields but OnLost and SlowWait are required.
type Config struct {
	Store      store.Store
	Timeout    time.Duration // of one call of the store that is about no lock, and half of Close's
	Renewal    time.Duration // of one call that renews; the watchdog shortens it for short leases
	MaxWaiters int
	SlowWait   time.Duration // after which a wait is logged; 0: never
	OnLost     func(*Handle) // may be nil
	Log        *slog.Logger
}

// LockConfig is what one lock is taken with. It does not change.
type LockConfig struct {
	request.Config
	Name     string
	MaxHold  time.Duration // 0: no cap
	Handoffs int           // local hand-overs of one grant at most; not positive: none

	kind localqueue.Kind // which waiters a grant by this config fits
}

// shareable reports whether a hold by this config may serve several owners of the
// process: it has to be renewed for as long as they have it.
func (c *LockConfig) shareable() bool { return !c.Fixed && c.MaxHold == 0 && c.Handoffs > 0 }

// Prepare completes the config. It is called once, when all fields are set. The kind has
// all by which the store tells two holds apart: a lease that is passed on must not have
// another length, nor show another label, than its new owner asked for.
func (c *LockConfig) Prepare() {
	c.kind = localqueue.Kind{TTL: int64(c.TTL), WaitTTL: int64(c.WaitTTL), Label: c.Label, Alone: !c.shareable()}
}

// Client takes locks from one store.
type Client struct {
	config Config
	log    *slog.Logger
	sender *request.Sender
	dog    *watchdog.Watchdog
	shards [64]shard

	asking   gauge        // calls that wait for the answer to their first request
	waiting  gauge        // calls that wait for a lock
	waits    atomic.Int64 // calls that waited for a lock and have ended
	waitTime atomic.Int64 // of waits, in nanoseconds
	renewed  atomic.Int64 // holds
	handed   atomic.Int64 // hand-overs without a call of the store
	lost     [len(lossCauses)]atomic.Int64
	renewals renewalLog
	onLost   notices
	logs     notices

	closing   chan struct{}
	isClosing atomic.Bool
	closed    chan struct{}
}

// New returns a client. It makes no call of the store.
func New(cfg Config) (*Client, error) {
	c := &Client{config: cfg, log: cfg.Log, closing: make(chan struct{}), closed: make(chan struct{})}
	c.asking.most, c.waiting.most = int64(max(cfg.MaxWaiters, leastAsking)), int64(cfg.MaxWaiters)
	var err error
	c.dog, err = watchdog.New(watchdog.Config{Renew: c.renew, Expired: c.expired, Timeout: cfg.Renewal})
	if err != nil {
		return nil, err
	}
	c.sender = request.NewSender(cfg.Store, c.warn)
	return c, nil
}

// Close ends the client. Calls that wait return ErrClosed, holds end and are
// released. It returns when the store has confirmed that, or an error that matches
// ErrUnavailable after twice the timeout. The calls that it cuts then may take longer.
// A second Close waits for the first and returns nil.
func (c *Client) Close() error {
	if !c.isClosing.CompareAndSwap(false, true) {
		<-c.closed
		return nil
	}
	defer close(c.closed)
	// First what could add holds, then the holds, then what their releases need. Nothing
	// is awaited before all that can be released has begun to be.
	close(c.closing)
	c.sender.StopAcquires()
	for i := range c.shards {
		c.shards[i].close(c)
	}
	c.dog.Close() // before the wait: what it told lost is among what is waited for

	bound := 2 * c.config.Timeout
	c.idle(time.Now().Add(bound))
	c.sender.StopReleases()
	// The releases that this has cut need a moment to return.
	returned := c.idle(time.Now().Add(bound + time.Second))
	left := c.sender.PendingReleases()
	if err := c.sender.StoreClosed(); err != nil { // and what it had to release is left
		return fmt.Errorf("%w: %w; %d releases are not confirmed and left to their leases", request.ErrUnavailable, err, left)
	}
	if left > 0 || !returned {
		return fmt.Errorf("%w: %d releases not confirmed within %v, left to their leases",
			request.ErrUnavailable, left, bound)
	}
	return nil
}

// AskStore makes one call of the store that takes part in no lock.
func (c *Client) AskStore(ctx context.Context, call func(context.Context) error) error {
	busy := c.sender.Busy()
	busy.Add() // so that Close waits for it
	defer busy.Done()
	if c.isClosing.Load() {
		return request.ErrClosed
	}
	if err := ended(ctx); err != nil {
		return err
	}
	err := c.sender.AskStore(ctx, c.config.Timeout, call)
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

// Notify has f called soon, on a goroutine that also calls the logger. What f does then
// delays no lock, however long it takes.
func (c *Client) Notify(f func()) { c.logs.add(f) }

// warn has a warning logged soon, by a logger that may block.
func (c *Client) warn(text string, attrs ...any) {
	c.logs.add(func() { c.log.Warn(text, attrs...) })
}

// Closing returns a channel that is closed when Close has begun.
func (c *Client) Closing() <-chan struct{} { return c.closing }

// idle waits until no call is under way, at most until deadline.
func (c *Client) idle(deadline time.Time) bool {
	for i := range c.shards {
		if !c.shards[i].calls.Wait(deadline) {
			return false
		}
	}
	return c.sender.Busy().Wait(deadline)
}

// close ends all holds of the shard and has them released. No hold is added
// afterwards: place.granted looks at isClosing under the same mutex.
func (sh *shard) close(c *Client) {
	var fx effects
	sh.mu.Lock()
	for _, n := range sh.names {
		for len(n.granted) > 0 {
			p, reason := n.granted[0], error(ErrClosedHold)
			if !p.lease.Valid() { // the watchdog has not told it yet
				reason = p.cause()
			}
			p.endAll(&fx, reason)
		}
	}
	sh.mu.Unlock()
	fx.run(c)
}
