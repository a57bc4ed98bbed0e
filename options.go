package dlock

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/store"
)

const (
	// MaxNameLen is the greatest length of a lock's name, in bytes.
	MaxNameLen = 1024
	// MaxTTL is the longest lease, so that a wrong unit cannot block a lock for years.
	MaxTTL = 366 * 24 * time.Hour

	// shortestTTL leaves some of a lease after the margin is taken off.
	shortestTTL = 10 * time.Millisecond

	maxLabel = 128
)

// Options configure a Client. The zero value of a field means the default that its
// comment states. A value out of range is an error of New.
type Options struct {
	// TTL is the lease of a hold: how long the store keeps it after its holder has
	// died. It does not limit how long a lock can be held, because a hold is renewed.
	// A shorter TTL frees the lock of a dead holder sooner. A longer one survives longer
	// outages of the store. Default 30 s; at least 10 ms and the store's minimum.
	TTL time.Duration
	// WaitTTL is how long the store keeps the place of a waiter that has died, or a
	// grant that its waiter has not renewed. Waiters ask the store again after a third
	// of it at most. Default the lesser of TTL and 5 s; at least 10 ms and the store's
	// minimum.
	WaitTTL time.Duration
	// StoreTimeout bounds one call of the store. It also bounds Unlock and the Try forms
	// as a whole, with their retries. Default a third of the lock's TTL, at most 3 s.
	StoreTimeout time.Duration
	// MaxHold is how long one grant can be held: the hold is not renewed any longer, and
	// is lost then. A lock call that gets the grant later than that returns the hold, lost
	// already, and no error: waiting on could not help. Default no cap.
	MaxHold time.Duration
	// MaxWaiters is how many calls of this client may wait for a lock at once, over all
	// names. Further calls fail with ErrTooManyWaiters, and Lock tries again with pauses.
	// Calls without an answer to their first request are counted apart. As many of them
	// are allowed, and at least 1,000, so an outage of the store is bounded too. The Try
	// forms are not counted. Default 100,000.
	MaxWaiters int
	// LocalHandoffs is how often in a row a writer's lock may pass from one goroutine
	// of this client to the next waiter here. Such a hand-over makes no call of the store
	// and costs microseconds instead of a round trip. Waiters of other processes
	// wait for that many turns at most, and for no turn that begins later than 10 ms
	// after the client has heard of the store's grant. Each turn has a token of its own.
	//
	// It is also how many readers of this client may join one that has the reader's
	// lock, within the same 10 ms. They share its hold at the store. Locks of explicit
	// owners, with MaxHold or without renewal always go through the store. So does what
	// the store granted to a Try form, or to a writer when no other call of this client
	// waited. Default 100, at most 1000. For none, use NoLocalHandoffs; any negative number
	// means the same.
	LocalHandoffs int
	// OnLost is called once for each grant that is lost. Its argument is the oldest
	// handle of the grant that is not unlocked yet. Done of the handle is closed before.
	// If Unlock finds the hold gone at the store, the argument is the handle that was
	// just unlocked, and its Err is ErrNotHeld. OnLost may block: the calls have
	// goroutines of their own, at most 64 as long as they return. A grant that never
	// reached its caller is not reported.
	OnLost func(*Hold)
	// Logger gets lost holds, renewals that begin to fail and that succeed again, and
	// releases that were not confirmed. Lock and TryLock log why they try again or could
	// not tell, and Unlock that it ended a lost hold, on their callers' goroutines. A
	// trouble that lasts is logged when it begins and when it ends, or at growing
	// intervals, not at each try. Default silent.
	Logger *slog.Logger
	// SlowWait is after how long a lock call that waits is logged as a warning, once, with
	// the holder and the trouble of the store as far as they are known. Default never.
	SlowWait time.Duration
	// Observer sees locks, holds and calls of the store, for metrics and traces.
	// Default none, which costs nothing.
	Observer Observer
	// Label says which process holds: Inspect shows it, and the errors of waiters
	// (Error.HeldBy). It has at most 128 bytes of UTF-8. Default the host's name and
	// the process id.
	Label string
}

// NoLocalHandoffs is the value of Options.LocalHandoffs for none.
const NoLocalHandoffs = -1

const (
	defaultLocalHandoffs = 100
	maxLocalHandoffs     = 1000

	defaultTTL          = 30 * time.Second
	defaultWaitTTL      = 5 * time.Second
	defaultStoreTimeout = 3 * time.Second
	defaultMaxWaiters   = 100_000
)

// resolve checks the options against what the store can keep and fills the
// defaults in, apart from WaitTTL and StoreTimeout, which follow each lock's TTL.
func (o Options) resolve(minTTL time.Duration) (Options, error) {
	o.TTL = cmp.Or(o.TTL, max(defaultTTL, minTTL))
	if err := validTTL("TTL", o.TTL, minTTL); err != nil {
		return o, err
	}
	if err := validTTL("WaitTTL", cmp.Or(o.WaitTTL, o.TTL), minTTL); err != nil {
		return o, err
	}
	if o.StoreTimeout < 0 || o.StoreTimeout > MaxTTL {
		return o, fmt.Errorf("%w: StoreTimeout %v is not between 0 and %v", ErrInvalidTTL, o.StoreTimeout, MaxTTL)
	}
	if o.MaxHold < 0 {
		return o, fmt.Errorf("%w: MaxHold %v is negative", ErrInvalidTTL, o.MaxHold)
	}
	if o.SlowWait < 0 {
		return o, fmt.Errorf("%w: SlowWait %v is negative", ErrInvalidTTL, o.SlowWait)
	}
	if o.MaxWaiters < 0 {
		return o, fmt.Errorf("%w: MaxWaiters %d is negative", ErrInvalidOption, o.MaxWaiters)
	}
	o.MaxWaiters = cmp.Or(o.MaxWaiters, defaultMaxWaiters)
	if o.LocalHandoffs > maxLocalHandoffs {
		return o, fmt.Errorf("%w: LocalHandoffs %d is more than %d", ErrInvalidOption, o.LocalHandoffs, maxLocalHandoffs)
	}
	o.LocalHandoffs = cmp.Or(o.LocalHandoffs, defaultLocalHandoffs)
	if err := validLabel(o.Label); err != nil {
		return o, err
	}
	o.Label = cmp.Or(o.Label, defaultLabel())
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	label := fmt.Sprintf("%s/%d", host, os.Getpid())
	return strings.ToValidUTF8(label[max(0, len(label)-maxLabel):], "")
}

func validTTL(what string, d, minTTL time.Duration) error {
	if d < minTTL || d > MaxTTL {
		return fmt.Errorf("%w: %s %v is not between %v (the least with this store) and %v",
			ErrInvalidTTL, what, d, minTTL, MaxTTL)
	}
	return nil
}

func validName(name string) error {
	if name == "" || len(name) > MaxNameLen {
		return fmt.Errorf("%w: %d bytes, 1 to %d are allowed", ErrInvalidName, len(name), MaxNameLen)
	}
	return nil
}

func validLabel(label string) error {
	if len(label) > maxLabel {
		return fmt.Errorf("%w: Label has %d bytes, at most %d are allowed", ErrInvalidOption, len(label), maxLabel)
	}
	if !utf8.ValidString(label) {
		return fmt.Errorf("%w: Label is not UTF-8", ErrInvalidOption)
	}
	return nil
}

// isNil also finds a nil pointer inside the interface. A constructor with an error
// that the caller ignored leaves one there.
func isNil(s store.Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// LockOption changes for one Mutex or RWMutex what Options say for all. A nil
// LockOption is an error of the lock's calls, ErrInvalidOption.
type LockOption func(*lockConfig)

// WithTTL sets the lease of this lock's holds in place of Options.TTL.
func WithTTL(d time.Duration) LockOption { return func(c *lockConfig) { c.TTL = d } }

// WithLabel sets the label of this lock's holds in place of Options.Label: the text by
// which Inspect and Error.HeldBy name the holder. It has at most 128 bytes. Locks with
// distinct labels do not pass from one to the other without a call of the store, so
// that the store shows the right one.
func WithLabel(label string) LockOption { return func(c *lockConfig) { c.Label = label } }

// WithMaxHold bounds how long one grant of this lock can be held, in place of
// Options.MaxHold. Zero means no bound.
func WithMaxHold(d time.Duration) LockOption { return func(c *lockConfig) { c.MaxHold = d } }

// WithoutRenewal has the hold end with its first lease, at Hold.Deadline: 1 % and 2 ms before
// the TTL is over, because clocks differ. Then others can take the lock. A hold that is not
// unlocked by then is lost, and reported and logged like every loss. Nothing asks the store
// meanwhile: the holder hears of Break, or of a loss of the store's data, only at
// Hold.Deadline or from Unlock.
func WithoutRenewal() LockOption { return func(c *lockConfig) { c.Fixed = true } }

// WithGrace tells the holder d before the lease could end, so that work that takes a
// while to stop can stop under the lock. The warning comes if d is left of the lease
// and no renewal was confirmed. It also comes d before MaxHold is reached, and before
// the end of a lease without renewal.
//
//   - The contexts of Do and Hold.Context are cancelled at the warning, with a cause
//     that matches ErrEnding. A context that is made after it is cancelled at once.
//   - Hold.Done and Hold.Err do not change: Done closes and Err is an error when the
//     hold is lost or unlocked. Until then the lock is held, and OnLost is not called.
//   - Renewals go on. If one succeeds after the warning, the log says so, Hold.Deadline
//     has moved, and Hold.Context makes contexts that are not cancelled. Contexts that
//     were cancelled stay so. Another warning may follow.
//
// A wait for the lock itself ends by its own context only. d is more than 0, at most a
// third of the TTL, and less than MaxHold. A grant that the store pushes lasts 3*d at
// least, in place of a shorter WaitTTL.
//
// A nested call shares the hold of the outer lock value, and with it the TTL. Its contexts
// end d before that lease does. If a third of the TTL is less than d, they end a third before.
// Give the outer value the option too. Without it a pushed grant may be shorter than 3*d,
// and the contexts end early.
func WithGrace(d time.Duration) LockOption {
	return func(c *lockConfig) { c.grace, c.graced = d, true }
}

// lockConfig is what one lock is taken with. err says why it is unusable. The calls
// of the lock return it, because Client.Mutex and Client.RWMutex return no error.
type lockConfig struct {
	core.LockConfig
	grace  time.Duration
	graced bool // by WithGrace
	err    error
}

func (c *Client) config(name string, opts []LockOption) *lockConfig {
	k := &lockConfig{}
	k.Name, k.TTL, k.MaxHold, k.Label = name, c.opts.TTL, c.opts.MaxHold, c.opts.Label
	for i, opt := range opts {
		if opt == nil {
			k.err = fmt.Errorf("%w: LockOption %d is nil", ErrInvalidOption, i+1)
			return k
		}
		opt(k)
	}
	k.WaitTTL = max(cmp.Or(c.opts.WaitTTL, max(min(k.TTL, defaultWaitTTL), c.minTTL)), 3*k.grace)
	k.Timeout = c.opts.timeout(k.TTL)
	k.Handoffs = c.opts.LocalHandoffs
	k.Prepare()
	k.err = k.check(c.minTTL)
	return k
}

func (k *lockConfig) check(minTTL time.Duration) error {
	if err := validName(k.Name); err != nil {
		return err
	}
	if k.MaxHold < 0 {
		return fmt.Errorf("%w: MaxHold %v is negative", ErrInvalidTTL, k.MaxHold)
	}
	if err := validLabel(k.Label); err != nil {
		return err
	}
	if k.graced && (k.grace <= 0 || k.grace > k.TTL/3 || k.MaxHold > 0 && k.grace >= k.MaxHold) {
		return fmt.Errorf("%w: grace %v is not between 0 and a third of the TTL (%v), or not less than MaxHold",
			ErrInvalidTTL, k.grace, k.TTL/3)
	}
	return validTTL("TTL", k.TTL, minTTL)
}

// timeout of one call for a lock with this TTL.
func (o Options) timeout(ttl time.Duration) time.Duration {
	return cmp.Or(o.StoreTimeout, min(ttl/3, defaultStoreTimeout))
}
