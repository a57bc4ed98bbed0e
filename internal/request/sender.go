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

	busy     Counter // calls of the store that no caller's goroutine makes
	unlisten func()
	closing  atomic.Bool
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
	d.acquires.cancel(store.ErrClosed)
}

// StopReleases ends every Release under way and refuses new ones.
func (d *Sender) StopReleases() { d.releases.cancel(store.ErrClosed) }

// Busy counts what the sender does in the background.
func (d *Sender) Busy() *Counter { return &d.busy }

// PendingReleases returns how many releases in the background are not confirmed.
func (d *Sender) PendingReleases() int { return d.releaser.pending() }

// Listening returns how many requests in the background wait for events.
func (d *Sender) Listening() int { return d.wakeups.count() }

// Renew renews holds with one call; see store.Store.
func (d *Sender) Renew(ctx context.Context, refs []store.Ref) []error {
	return d.store.Renew(ctx, refs)
}

// Look makes one call of the store that is about no request. Its context has the
// values of ctx, and ends with ctx, the timeout or Close. An error that says unknown
// matches ErrUnavailable.
func (d *Sender) Look(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	bounded := &callContext{caller: ctx, shared: d.acquires.within(time.Now(), timeout)}
	defer bounded.end()
	err := call(bounded)
	if err == nil || Certain(err) || errors.Is(err, store.ErrUnsupported) {
		return err
	}
	return unavailable(explain(err, bounded.Err() != nil, timeout))
}

// release makes one call to release ref.
func (d *Sender) release(ref store.Ref, now time.Time, timeout time.Duration) error {
	ctx := d.releases.within(now, timeout)
	defer ctx.leave()
	if d.releases.base.Err() != nil {
		return store.ErrClosed
	}
	return explain(d.store.Release(ctx, ref), ctx.Err() != nil, timeout)
}

// explain replaces the error of a context of our own by what it means, so that a
// context's error always is the caller's.
func explain(err error, ended bool, timeout time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	if !ended {
		return fmt.Errorf("the store gave up: %v", err)
	}
	return fmt.Errorf("%w within %v: %v", errNoReply, timeout, err)
}

var errNoReply = errors.New("no reply from the store")

// reason is the error to report after two attempts that had unknown outcomes. A
// reply says more about the cause than the silence that came after it.
func reason(earlier, latest error) error {
	if earlier == nil || !errors.Is(latest, errNoReply) || errors.Is(earlier, errNoReply) {
		return latest
	}
	return fmt.Errorf("%v, and before that: %w", latest, earlier)
}

// ErrUnavailable is what ends a request about which the store has confirmed
// nothing for too long.
var ErrUnavailable = errors.New("store is unavailable")

func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// ErrExpired is store.ErrLost for a grant that arrived after its lease had run out.
var ErrExpired = fmt.Errorf("%w: the grant arrived after its lease had run out", store.ErrLost)

// Certain reports that a store's error says "certainly not" rather than unknown.
func Certain(err error) bool {
	for _, refusal := range []error{
		store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// settled reports that after this answer to a release nothing of the id is left. A
// refusal leaves it where it was.
func settled(err error) bool {
	return err == nil || Certain(err) && !errors.Is(err, store.ErrRefused)
}
