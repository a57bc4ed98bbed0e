// Package watchdog keeps leases alive. A lease is anything that some store
// gives up unless it is renewed in time; what it protects is not the
// watchdog's business.
//
// The caller arms a [Lease] with [Watchdog.Keep] and disarms it with
// [Lease.End], or [Lease.Disarm] if he holds locks of his own. In between the watchdog renews it at a third of its validity,
// many leases with one call, and more often once a renewal has an unknown
// outcome. A lease that cannot be renewed until its deadline, or of which the
// store says that it is gone, is declared lost once, through [Config.Expired].
//
// Deadlines are judged on the monotonic clock only, and declared by standard
// timers. The timing wheel decides when renewals are sent and nothing else: if
// it stalls, or fires at a wrong moment because the wall clock was stepped,
// standard timers send them in its place. The monotonic clock stands still while
// the host is suspended: a lease that ended meanwhile counts as valid until a
// renewal says otherwise or its deadline comes.
//
// Locks of the watchdog are never held while Renew or Expired runs, and no
// method that the caller may use under its own locks calls back.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is what is known of one lease after an attempt to renew it.
type Outcome uint8

const (
	// Unknown: the renewal may or may not have been applied. The deadline
	// stays and the watchdog tries again, sooner each time.
	Unknown Outcome = iota
	// Renewed: the lease is worth its full validity, counted from the moment
	// before Renew was called.
	Renewed
	// Lost: the lease is certainly gone. It is never retried.
	Lost
)

// Cause says why a lease was declared lost.
type Cause uint8

const (
	// DeadlinePassed: no renewal was confirmed before the deadline.
	DeadlinePassed Cause = iota
	// ToldLost: Renew reported Lost.
	ToldLost
)

// String returns a short lower-case text for logs.
func (c Cause) String() string {
	if c == ToldLost {
		return "told lost"
	}
	return "deadline passed"
}

const (
	// DefaultTimeout is the bound of one Renew call when Config.Timeout is 0.
	DefaultTimeout = 5 * time.Second
	// DefaultMaxBatch is the largest batch when Config.MaxBatch is 0.
	DefaultMaxBatch = 256
)

// ErrConfig is wrapped by every error of New.
var ErrConfig = errors.New("watchdog: invalid config")

// Config is what New needs. Renew and Expired are required.
type Config struct {
	// Renew renews a batch with one call and returns one Outcome for each
	// lease, in order; leases beyond the end of a short or nil result are
	// Unknown. It is called on the watchdog's goroutines, several at once for
	// different leases, never two at once for one lease. It must return soon
	// after ctx ends and must not keep batch after it returned. A panic is
	// not caught.
	Renew func(ctx context.Context, batch []*Lease) []Outcome

	// Expired is called once for each lease that is lost, without any lock of
	// the watchdog held. It must not block: other leases of the same batch or
	// deadline are told after it. It may arm and end leases, it must not call
	// Close.
	Expired func(l *Lease, cause Cause)

	// Timeout bounds one Renew call; 0 means DefaultTimeout. A call is also
	// ended after a quarter of the shortest validity in its batch, so that
	// one silent call leaves time for others, and when the last deadline of
	// its batch has passed.
	Timeout time.Duration

	// MaxBatch is the largest number of leases given to one Renew call;
	// 0 means DefaultMaxBatch.
	MaxBatch int
}

// Watchdog renews leases. It is safe for concurrent use. A few seconds after
// the last lease is disarmed it has no goroutine and no wheel; at most a
// standard timer for each shard is left, that fires once for nothing.
type Watchdog struct {
	renew    func(context.Context, []*Lease) []Outcome
	expired  func(*Lease, Cause)
	timeout  int64
	maxBatch int

	// base is the zero of every int64 moment in this package: nanoseconds on
	// the monotonic clock. Wall time is compared nowhere.
	base time.Time

	wheels *wheelKeeper
	shards [shardCount]shard
	next   atomic.Uint32 // round robin over the shards

	ctx    context.Context // of the Renew calls, ended by Close
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines that call Renew or Expired

	closing sync.Once
}

// shardCount is fixed: four mutexes are enough not to be contended by callers
// that each wait for a store, and more shards would only cut batches smaller. Of
// ten thousand leases of 10 s a batch has a hundred.
const shardCount = 4

// New returns a watchdog, or an error wrapping ErrConfig that says what is
// wrong with cfg. It starts no goroutine. The caller must Close it.
func New(cfg Config) (*Watchdog, error) {
	return newWatchdog(cfg, newTimingWheel)
}

func newWatchdog(cfg Config, newWheel func() wheel) (*Watchdog, error) {
	switch {
	case cfg.Renew == nil:
		return nil, fmt.Errorf("%w: Renew is nil", ErrConfig)
	case cfg.Expired == nil:
		return nil, fmt.Errorf("%w: Expired is nil", ErrConfig)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("%w: negative Timeout %v", ErrConfig, cfg.Timeout)
	case cfg.MaxBatch < 0:
		return nil, fmt.Errorf("%w: negative MaxBatch %d", ErrConfig, cfg.MaxBatch)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = DefaultMaxBatch
	}
	w := &Watchdog{
		renew:    cfg.Renew,
		expired:  cfg.Expired,
		timeout:  int64(cfg.Timeout),
		maxBatch: cfg.MaxBatch,
		// A second ahead of the first moment, so that a deadline in the past
		// can be told from 0, which means "not armed", and still be past.
		base: time.Now().Add(-time.Second),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.wheels = &wheelKeeper{now: w.now, newWheel: newWheel, condemned: w.offWheel}
	for i := range w.shards {
		w.shards[i].init(w)
	}
	return w, nil
}

// now is the current moment; it never goes back and ignores the wall clock.
func (w *Watchdog) now() int64 { return int64(time.Since(w.base)) }

// moment converts t, clamped into what an armed lease may have as its deadline.
func (w *Watchdog) moment(t time.Time) int64 { return max(1, int64(t.Sub(w.base))) }

// Close stops renewing: it ends the context of the Renew calls under way,
// waits for the watchdog's goroutines and for the callbacks on them, and
// declares no lease lost from then on. Leases that are still armed keep their
// deadline: Valid, Check, End and Disarm go on by the clock, and Check and End
// may still call Expired. A wheel that is stuck is left behind after a second.
// Further calls wait likewise and do nothing. It must not be called from Renew
// or Expired.
func (w *Watchdog) Close() {
	w.closing.Do(func() {
		for i := range w.shards {
			w.shards[i].close()
		}
		w.cancel()
		w.wheels.close()
	})
	w.work.Wait()
}

// offWheel moves every slot that waits on e to the standard timers.
func (w *Watchdog) offWheel(e *engine) {
	for i := range w.shards {
		w.shards[i].offWheel(e)
	}
}
