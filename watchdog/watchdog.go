// Package watchdog keeps leases alive. A lease is anything that a store gives up
// unless it is renewed in time; the watchdog does not know what it protects.
//
// The caller arms a [Lease] with [Watchdog.Keep] and disarms it with
// [Lease.Disarm]. In between the watchdog renews the lease when a third of its
// validity has passed, many leases with one call, and more often after a renewal
// with an unknown outcome. A lease is lost if no renewal is confirmed before its
// deadline, or if the store says that it is gone. Each loss is declared once,
// through [Config.Expired].
//
// Deadlines are judged on the monotonic clock alone and declared by standard
// timers. The timing wheel decides when renewals are sent and nothing else. If
// it hangs, or fires at a wrong moment because the wall clock was stepped,
// standard timers send the renewals. The monotonic clock stands still while the
// host is suspended: a lease that ended meanwhile counts as valid until a
// renewal says otherwise or its deadline comes.
//
// The watchdog holds none of its locks while Renew or Expired runs.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome says what is known of a lease after an attempt to renew it.
type Outcome uint8

const (
	// Unknown: the store may or may not have renewed the lease. The deadline
	// stays, and the watchdog tries again.
	Unknown Outcome = iota
	// Renewed: the lease is valid for its full validity, counted from the
	// moment before Renew was called.
	Renewed
	// Lost: the lease is certainly gone. It is not renewed again.
	Lost
)

// Cause says why a lease was lost.
type Cause uint8

const (
	// DeadlinePassed: no renewal was confirmed before the deadline.
	DeadlinePassed Cause = iota + 1
	// ToldLost: Renew returned Lost for the lease before its deadline.
	ToldLost
	// CapReached: the deadline that passed was Terms.Last.
	CapReached
)

// String returns a short lower-case text for logs.
func (c Cause) String() string {
	switch c {
	case DeadlinePassed:
		return "deadline passed"
	case ToldLost:
		return "told lost"
	case CapReached:
		return "maximum hold time reached"
	}
	return "not lost"
}

const (
	// DefaultTimeout is the bound of one Renew call when Config.Timeout is 0.
	DefaultTimeout = 5 * time.Second
	// DefaultMaxBatch is the largest batch when Config.MaxBatch is 0.
	DefaultMaxBatch = 256
)

// ErrConfig is wrapped by every error of New.
var ErrConfig = errors.New("watchdog: invalid config")

// Config configures a watchdog. Renew and Expired are required.
type Config struct {
	// Renew renews a batch with one call and returns one Outcome for each
	// lease, in order. Leases beyond the end of a short or nil result are
	// Unknown. Renew is called on goroutines of the watchdog, several times at
	// once for different leases, never twice at once for one lease. It must
	// return soon after ctx ends and must not keep batch after it returned. A
	// panic is not caught.
	Renew func(ctx context.Context, batch []*Lease) []Outcome

	// Expired is called once for each lease that is lost, on at most four
	// goroutines of the watchdog. It must not block, because other losses
	// are reported after it. It may call Cause, Keep and Disarm; it must
	// not call Close.
	Expired func(*Lease)

	// Timeout bounds one call of Renew; 0 means DefaultTimeout. A call also
	// ends after a quarter of the shortest validity in its batch, so that
	// a call without an answer leaves time for others, and when the last
	// deadline of its batch has passed.
	Timeout time.Duration

	// MaxBatch is the largest number of leases given to one call of Renew;
	// 0 means DefaultMaxBatch.
	MaxBatch int
}

// Watchdog renews leases. It is safe for concurrent use. A few seconds after
// the last lease is disarmed it has no goroutine and no wheel. At most a standard
// timer for each shard is left.
type Watchdog struct {
	cfg Config

	// base is the zero of every int64 moment in this package: nanoseconds on
	// the monotonic clock. No code compares wall times.
	base time.Time

	wheels wheelSupply
	shards [shardCount]shard
	next   atomic.Uint32 // the next new lease goes to this shard

	ctx    context.Context // of the calls of Renew, ended by Close
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines that call Renew or Expired

	closing sync.Once
}

// shardCount is fixed. Callers each wait for a store between two calls, so four
// mutexes are not contended. More shards would make smaller batches: with four,
// a batch of ten thousand leases of 10 s has a hundred.
const shardCount = 4

// New returns a watchdog, or an error wrapping ErrConfig that says what is
// wrong with cfg. It starts no goroutine. The caller must Close it.
func New(cfg Config) (*Watchdog, error) {
	return newWatchdog(cfg, newTimingWheel)
}

// newWatchdog is New with wheels of a test.
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
		cfg: cfg,
		// A second before now, so that a deadline in the past can be more
		// than 0, which means "not armed".
		base: time.Now().Add(-time.Second),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.wheels.now, w.wheels.newWheel = w.now, newWheel
	for i := range w.shards {
		w.shards[i].w = w
	}
	return w, nil
}

// now returns the current moment. It never goes back and ignores the wall clock.
func (w *Watchdog) now() int64 { return int64(time.Since(w.base)) }

// moment returns t as a moment, or 1 if t is before that.
func (w *Watchdog) moment(t time.Time) int64 { return max(1, int64(t.Sub(w.base))) }

// Close stops renewing and declares no further losses. It ends the context of
// the calls of Renew under way, and waits until all calls of Renew and Expired have
// returned. It stops the wheel, but does not wait for that: a wheel may hang. Leases
// that are still armed keep their deadline: Valid and Disarm go on by the clock.
// Further calls wait as the first one does. Renew and Expired must not call Close.
func (w *Watchdog) Close() {
	w.closing.Do(func() {
		for i := range w.shards {
			w.shards[i].close()
		}
		w.cancel()
		w.wheels.stop(never)
	})
	w.work.Wait()
}
