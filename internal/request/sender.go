package request

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Sender sends the requests of one client to its store. It is safe for concurrent use.
type Sender struct {
	store    store.Store
	log      *slog.Logger
	unlisten func()
	wakeups  wakeups
	releaser releaser
	counts   counts
	busy     Counter // calls of the store that no caller's goroutine makes

	acquires, releases         context.Context // bound the calls; ended by Close at once, and at last
	stopAcquires, stopReleases func()
	storeClosed                atomic.Bool // a release has found the store closed
}

// NewSender returns a sender to s. The caller must stop it.
func NewSender(s store.Store, log *slog.Logger) *Sender {
	d := &Sender{store: s, log: log}
	d.acquires, d.stopAcquires = context.WithCancel(context.Background())
	d.releases, d.stopReleases = context.WithCancel(context.Background())
	d.releaser.sender, d.releaser.first.max, d.releaser.retry.max = d, maxFirstTries, maxRetries
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

// Busy counts what the sender does in the background.
func (d *Sender) Busy() *Counter { return &d.busy }

// StoreClosed returns an error that says so if a release has found the store closed.
func (d *Sender) StoreClosed() error {
	if d.storeClosed.Load() {
		return errStoreClosed
	}
	return nil
}

// call makes one call of the store, about an id if it is not "". Its context has the values of ctx, and
// ends with ctx, base or timeout after now. Errors of contexts are replaced.
func (d *Sender) call(ctx, base context.Context, id string, now time.Time, timeout time.Duration, f func(context.Context) error) error {
	bounded := &callContext{Context: ctx, base: base, at: now.Add(timeout)}
	err := f(bounded)
	if err != nil {
		err = explain(err, bounded.Err() != nil, now)
	}
	bounded.leave()
	if !errors.Is(err, store.ErrUnsupported) {
		d.counts.count(id, err)
	}
	return err
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
	d.counts.count("", failed)
	return errs
}

// Look makes one call of the store that is about no request. Its context has the values of ctx, and
// ends with ctx, the timeout or Close. An error that says unknown matches ErrUnavailable.
func (d *Sender) Look(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	err := d.call(ctx, d.acquires, "", time.Now(), timeout, call)
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
	err := d.call(context.Background(), d.releases, ref.ID, now, timeout, func(ctx context.Context) error {
		return d.store.Release(ctx, ref)
	})
	if errors.Is(err, store.ErrClosed) {
		d.storeClosed.Store(true)
	}
	return err
}
