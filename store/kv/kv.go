// Package kv makes a dlock store of any backend that can change one small value
// atomically: a table in a database, a file under a lock, a map under a mutex.
// A backend has three methods and knows nothing of locks. This package brings
// the rest: the lock model (package store/model), the encoding of records, wake-ups,
// batches, foreign values, expired records, closing.
//
//	func Open(db *sql.DB) (*kv.Store, error) { return kv.New(&backend{db}, nil) }
//
// The document docs/writing-a-store.md has a whole backend as an example.
package kv

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

// Backend keeps one value for each name, and one token counter that only grows.
// All methods are called from several goroutines at once.
type Backend interface {
	// Update calls f once for each name with the name's Record, and saves what f
	// changed. It does all this in one atomic step: for none of the names does
	// another Update, of this process or another, interleave with it. The names
	// are distinct and sorted, so locks taken in their order never deadlock.
	//
	// A nil error means that the step was committed and will last. Any other
	// error means that it may or may not have been committed, or may still be,
	// unless it matches [store.ErrRefused]: then it was certainly not committed.
	//
	// A backend that has to repeat the step, for example after a serialization
	// failure, calls f again with fresh Records: f forgets what it did before.
	// Update passes f's panics on. It returns soon after ctx ends, if it can; a
	// caller whose ctx has ended does not wait for it.
	Update(ctx context.Context, names []string, f func(i int, r *Record)) error

	// Names returns the names that have a value, in no order. It returns soon after
	// ctx ends, if it can.
	Names(ctx context.Context) ([]string, error)

	// Close ends the backend. It is called once. Other calls may be under way, and
	// may fail from then on.
	Close() error
}

// Record is what an Update reads and writes for one name.
type Record struct {
	// Value is the value of the name, nil if it has none. If f sets Changed, the
	// backend saves the Value that f left, or deletes the value if that is nil.
	// f does not change the bytes of the Value it was given.
	Value   []byte
	Changed bool

	// Now is the present on a clock that all users of the backend share and that
	// does not run backwards. The backend reads it inside the step, after every
	// wait for a lock, and never before.
	Now time.Time

	// Last is the last token issued, for this name or for all names. f raises it
	// when it issues tokens, and the backend saves it in the same step. The
	// counter outlives the value: it is never lower than a token that was issued.
	// Records of one Update share the counter if names share it.
	Last uint64

	// Limit, unless it is 0, is the greatest token that f may issue. A backend
	// that draws from a sequence reserves the tokens from Last+1 to Limit for this
	// Update and has no counter to save.
	Limit uint64

	// Expires is set by f together with Value: nothing in the value is alive from
	// that moment on. A backend may delete the value then, but need not.
	Expires time.Time
}

// Notifier is an optional ability of a Backend: messages between handles, for
// wake-ups. Losing a message costs time only. Handles on a backend without this
// ability look at their waiters' records again and again, less and less often.
type Notifier interface {
	// Receive registers the handle: from then on got is called with each message
	// to it, by one goroutine at a time, until the backend is closed. With a nil
	// message got says that messages may have been lost, for example because a
	// connection was opened again. got does not block. It is called once, before
	// any Send. An error means that no messages arrive: the handle looks for itself,
	// but still sends. If messages arrive later after all, got is called with nil first.
	Receive(handle string, got func(msg []byte)) error

	// Send sends a message to a handle: printable ASCII and newlines, at most 4096 bytes,
	// which got gets as one. It does not wait for anything, and tells of no failure. The
	// handle may be gone.
	Send(handle string, msg []byte)
}

// Sweeper is an optional ability of a Backend: to delete expired values at once.
// Without it the Store finds them with Names and Update.
type Sweeper interface {
	// Sweep deletes values whose Expires has passed.
	Sweep(ctx context.Context) error
}

// Options of a Store. The zero value of each field means its default.
type Options struct {
	// MinTTL is the shortest lease that makes sense, given how long an Update
	// takes and how finely the clock counts. Default: 50 ms.
	MinTTL time.Duration

	// Batch is how many names one Update has at most. Default: 100.
	Batch int

	// Poll is how soon the record of a waiter is looked at again on a backend
	// without a Notifier. Each look that finds nothing doubles the time, up to
	// MaxPoll. Defaults: 20 ms and 1 s.
	Poll, MaxPoll time.Duration
}

// withDefaults returns the options with the defaults filled in.
func (o *Options) withDefaults() (all Options, err error) {
	if o != nil {
		all = *o
	}
	if all.MinTTL < 0 || all.Batch < 0 || all.Poll < 0 || all.MaxPoll < 0 {
		return all, errors.New("kv: an option is negative")
	}
	if all.MinTTL == 0 {
		all.MinTTL = 50 * time.Millisecond
	}
	if all.Batch == 0 {
		all.Batch = 100
	}
	if all.Poll == 0 {
		all.Poll = 20 * time.Millisecond
	}
	if all.MaxPoll == 0 {
		all.MaxPoll = max(time.Second, all.Poll)
	}
	return all, nil
}

// Store is one handle on the locks of a backend. It is safe for concurrent use.
type Store struct {
	backend  Backend
	notifier Notifier    // nil: the backend has no messages
	polls    atomic.Bool // no messages arrive: waiters are looked for
	opts     Options
	id       string          // of this handle
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	sinks sinks.List

	mu      sync.Mutex
	closed  bool
	watched watched
	sweep   sweeping
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

// New returns a handle on the locks in backend. A nil *Options means the
// defaults. Close closes the backend. New does not use the backend, except for
// Receive.
func New(backend Backend, opts *Options) (*Store, error) {
	if backend == nil {
		return nil, errors.New("kv: no backend")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{backend: backend, opts: o, id: rand.Text()[:12]}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	// A random start: many short handles sweep as often as one that lives long.
	s.sweep.created = mathrand.IntN(minCreated)
	s.polls.Store(true)
	if n, ok := backend.(Notifier); ok {
		s.notifier = n // in any case: other handles may listen
		if n.Receive(s.id, s.receive) == nil {
			s.polls.Store(false)
		}
	}
	return s, nil
}

// Polls says whether this handle looks for its waiters because no messages
// arrive.
func (s *Store) Polls() bool { return s.polls.Load() }

// MinTTL implements [store.Store].
func (s *Store) MinTTL() time.Duration { return s.opts.MinTTL }

// Close implements [store.Store] and closes the backend. Calls under way end
// with an unknown outcome.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.sinks.Close()
	s.cancel()
	return s.backend.Close()
}

// isClosed says whether Close was called.
func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
