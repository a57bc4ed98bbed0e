package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Sender sends the requests of one client to its store. It is safe for concurrent
// use.
type Sender struct {
	store store.Store
	log   *slog.Logger

	acquires deadlines // contexts of Acquire, which Close ends at once
	releases deadlines // contexts of Release, which Close ends at last
	wakeups  wakeups
	releaser releaser
	counts   counts

	busy     Counter // calls of the store that no caller's goroutine makes
	unlisten func()
	closing  atomic.Bool

	storeClosed atomic.Bool // a release has found the store closed
}

// NewSender returns a sender to s. The caller must Close it.
func NewSender(s store.Store, log *slog.Logger) *Sender {
	d := &Sender{store: s, log: log}
	d.acquires.init()
	d.releases.init()
	d.releaser.init(d)
	d.unlisten = s.Listen(d.wakeups.deliver)
	return d
}

// StopAcquires ends every Acquire under way and refuses new ones. Events are not
// listened to any more.
func (d *Sender) StopAcquires() {
	d.closing.Store(true)
	d.unlisten()
	d.acquires.cancel(ErrClosed)
}

// StopReleases ends every Release under way and refuses new ones.
func (d *Sender) StopReleases() { d.releases.cancel(ErrClosed) }

// Busy counts what the sender does in the background.
func (d *Sender) Busy() *Counter { return &d.busy }

// StoreClosed returns an error that says so if a release has found the store closed.
func (d *Sender) StoreClosed() error {
	if d.storeClosed.Load() {
		return errStoreClosed
	}
	return nil
}

// PendingReleases returns how many releases in the background are not confirmed.
func (d *Sender) PendingReleases() int { return d.releaser.pending() }

// Listening returns how many requests in the background wait for events.
func (d *Sender) Listening() int { return d.wakeups.count() }

// Renew renews holds with one call; see store.Store.
func (d *Sender) Renew(ctx context.Context, refs []store.Ref) []error {
	errs := d.store.Renew(ctx, refs)
	var failed error
	for _, err := range errs {
		if isFailure(err) {
			failed = err
		}
	}
	d.counts.count("", failed)
	return errs
}

// Look makes one call of the store that is about no request. Its context has the
// values of ctx, and ends with ctx, the timeout or Close. An error that says unknown
// matches ErrUnavailable.
func (d *Sender) Look(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	now := time.Now()
	bounded := d.acquires.bound(ctx, now, timeout)
	defer bounded.leave()
	err := call(bounded)
	if errors.Is(err, store.ErrUnsupported) {
		return err
	}
	d.counts.count("", err)
	if err = explain(err, bounded.Err() != nil, now); err == nil || Certain(err) {
		return err
	}
	return Unavailable(err)
}

// release makes one call to release ref.
func (d *Sender) release(ref store.Ref, now time.Time, timeout time.Duration) error {
	ctx := d.releases.within(now, timeout)
	defer ctx.leave()
	if d.releases.base.Err() != nil {
		return ErrClosed
	}
	err := d.store.Release(ctx, ref)
	d.counts.count(ref.ID, err)
	if errors.Is(err, store.ErrClosed) {
		d.storeClosed.Store(true)
	}
	return explain(err, ctx.Err() != nil, now)
}

// explain replaces the error of a context of our own by what it means, so that a
// context's error always is the caller's. A certain error stays certain: a store may
// wrap the error of a context of its own in it. sent is when the call began.
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
		silent = silent / time.Millisecond * time.Millisecond
	}
	return fmt.Errorf("%w within %v", errNoReply, silent)
}

var errNoReply = errors.New("no reply from the store")

// reason is the error to report after two attempts that had unknown outcomes. A
// reply says more about the cause than the silence that came after it.
func reason(earlier, latest error) error {
	if before, ok := errors.AsType[*silence](earlier); ok {
		earlier = before.earlier
	}
	if earlier == nil || !errors.Is(latest, errNoReply) || errors.Is(earlier, errNoReply) {
		return latest
	}
	return &silence{latest, earlier}
}

// silence is an error that was followed by silence.
type silence struct{ latest, earlier error }

func (e *silence) Error() string { return fmt.Sprintf("%v, and before that: %v", e.latest, e.earlier) }
func (e *silence) Unwrap() error { return e.earlier }

// ErrClosed is store.ErrClosed for a client that was closed.
var ErrClosed = fmt.Errorf("the client is %w", store.ErrClosed)

// errStoreClosed is store.ErrClosed for a store that was closed before its client.
var errStoreClosed = fmt.Errorf("the store is %w, but its client is not: close the client first", store.ErrClosed)

// WhichClosed makes an error of the store say that it was the store that was closed.
func WhichClosed(err error) error {
	if err == store.ErrClosed {
		return errStoreClosed
	}
	return err
}

// ErrUnavailable is what ends a request about which the store has confirmed
// nothing for too long.
var ErrUnavailable = errors.New("store is unavailable")

// Unavailable is ErrUnavailable with its cause.
func Unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// ErrExpired is store.ErrLost for a grant that arrived after its lease had run out.
var ErrExpired = fmt.Errorf("%w: the grant arrived after its lease had run out", store.ErrLost)

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

// certainError is an error of the store of which only the sentinel can be matched.
type certainError struct {
	text     string
	sentinel error
}

func (e *certainError) Error() string { return e.text }
func (e *certainError) Unwrap() error { return e.sentinel }

// settled reports that after this answer to a release nothing of the id is left. A
// refusal leaves it where it was.
func settled(err error) bool {
	return err == nil || Certain(err) && !errors.Is(err, store.ErrRefused)
}
