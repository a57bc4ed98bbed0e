package request

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Sender sends the requests of one client to its store. It is safe for concurrent use.
type Sender struct {
	store    store.Store
	warn     func(text string, attrs ...any)
	unlisten func()
	wakeups  wakeups
	releaser releaser
	busy     Counter // what Close waits for: work in the background, and calls of AskStore

	calls, failed, pushed atomic.Int64 // see Calls

	acquires, releases         bound // of the calls; ended by Close at once, and at last
	stopAcquires, stopReleases func()
	storeClosed                atomic.Bool // a release has found the store closed
}

// NewSender returns a sender to s. The caller must stop it. warn logs, and must not block.
func NewSender(s store.Store, warn func(text string, attrs ...any)) *Sender {
	d := &Sender{store: s, warn: warn}
	d.acquires.Context, d.stopAcquires = context.WithCancel(context.Background())
	d.releases.Context, d.stopReleases = context.WithCancel(context.Background())
	d.releaser = releaser{sender: d, first: jobs{max: maxFirstTries}, retry: jobs{max: maxRetries}, lost: jobs{max: maxRetries}}
	d.unlisten = s.Listen(d.wakeups.deliver)
	return d
}

// StopAcquires ends every Acquire under way and refuses new ones. Events are not listened to any more.
func (d *Sender) StopAcquires() {
	d.stopAcquires()
	d.unlisten()
}

// StopReleases ends every Release under way and refuses new ones.
func (d *Sender) StopReleases() { d.stopReleases() }

// Busy counts what Close waits for: work in the background, and calls of AskStore, which their callers add.
func (d *Sender) Busy() *Counter { return &d.busy }

// StoreClosed returns an error that says so if a release has found the store closed.
func (d *Sender) StoreClosed() error {
	if d.storeClosed.Load() {
		return errStoreClosed
	}
	return nil
}

// Renew renews holds with one call; see store.Store.
func (d *Sender) Renew(ctx context.Context, refs []store.Ref) []error {
	errs := d.store.Renew(ctx, refs)
	var failed error
	for _, err := range errs {
		if isFailure(err) {
			failed = err
		}
	}
	d.count(failed)
	return errs
}

// AskStore makes one call of the store that is about no request. Its context has the values of ctx, and
// ends with ctx, the timeout or Close. An error that says unknown matches ErrUnavailable.
func (d *Sender) AskStore(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	c := call(ctx, &d.acquires, time.Now(), timeout)
	err := c.end(d, ask(c))
	if err == nil || Certain(err) || errors.Is(err, store.ErrUnsupported) {
		return err
	}
	return Unavailable(err)
}

// release makes one call to release ref.
func (d *Sender) release(ref store.Ref, now time.Time, timeout time.Duration) error {
	if d.releases.Err() != nil {
		return ErrClosed
	}
	c := call(context.Background(), &d.releases, now, timeout)
	err := c.end(d, d.store.Release(c, ref))
	if errors.Is(err, store.ErrClosed) {
		d.storeClosed.Store(true)
	}
	return err
}

// count counts a call of the store that has ended with err. A call that no store got is none.
func (d *Sender) count(err error) {
	if errors.Is(err, store.ErrUnsupported) {
		return
	}
	d.calls.Add(1)
	if isFailure(err) {
		d.failed.Add(1)
	}
}

// isFailure reports that the store gave no usable answer: an outcome that is unknown, or a refusal.
func isFailure(err error) bool {
	return err != nil && (!Certain(err) || errors.Is(err, store.ErrRefused))
}

// Calls returns how many calls of the store have ended, how many of them had no usable answer, and how
// many grants came as an event.
func (d *Sender) Calls() (calls, failed, pushed int64) {
	return d.calls.Load(), d.failed.Load(), d.pushed.Load()
}
