// Package memory is a dlock store inside the process: for unit tests, for
// programs of one process, and as the reference of the lock model. lock.go is
// that model, rule by rule; this file is the handles and shards around it.
//
// It starts no goroutine and no timer: what has expired is noticed by the next
// operation that looks. It works inside a testing/synctest bubble.
package memory

import (
	"context"
	"crypto/rand"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// minTTL leaves a claim room beside the core's safety margin (1 % + 2 ms).
const minTTL = 10 * time.Millisecond

// Store is one handle on a set of locks kept in memory. It is safe for
// concurrent use. Holds and queues are gone when the last handle is; they do
// not outlive the process.
type Store struct {
	locks  *locks
	closed atomic.Bool

	mu    sync.Mutex
	sinks []*sink // replaced, never changed in place, so that deliver can use it unlocked
}

type sink struct{ call func(store.Event) }

var (
	_ store.Store       = (*Store)(nil)
	_ store.Breaker     = (*Store)(nil)
	_ store.Lister      = (*Store)(nil)
	_ store.TokenRaiser = (*Store)(nil)
	_ store.Incarnator  = (*Store)(nil)
)

// New returns a handle on a new, empty set of locks.
func New() *Store {
	l := &locks{seed: maphash.MakeSeed(), incarnation: rand.Text()}
	for i := range l.shards {
		l.shards[i].locks = make(map[string]*lock)
	}
	return &Store{locks: l}
}

// Peer returns another handle on the same locks, such as a second process
// would have: it sees the same holds and queues, and gets the events of the
// requests that were queued through it alone.
func (s *Store) Peer() *Store { return &Store{locks: s.locks} }

// locks are what all peers share. Names are spread over shards so that
// distinct names do not contend.
type locks struct {
	seed        maphash.Seed
	incarnation string
	tokens      atomic.Uint64 // the last one issued
	shards      [64]shard
}

type shard struct {
	mu    sync.Mutex
	locks map[string]*lock
}

func (l *locks) shard(name string) *shard {
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// on runs f on the lock of one name, creating it if absent and create is true
// (else f does not run), brought up to date before and dropped afterwards if
// nothing is left in it. Events go out when the shard is unlocked.
func (s *Store) on(name string, create bool, f func(l *lock, t *turn)) {
	t := turn{now: time.Now(), tokens: &s.locks.tokens}
	sh := s.locks.shard(name)
	sh.mu.Lock()
	l := sh.locks[name]
	if l == nil && create {
		sh.sweep(t.now)
		l = &lock{}
		sh.locks[name] = l
	}
	if l != nil {
		l.settle(&t)
		f(l, &t)
		if l.empty() {
			delete(sh.locks, name)
		}
	}
	sh.mu.Unlock()
	for _, w := range t.wakes {
		w.via.deliver(w.event)
	}
}

// sweep looks at two names, which the map picks at random, and drops those in
// which nothing is alive. Called for each name that is added, it bounds what
// holders that died leave behind to a multiple of what is in use, without a
// goroutine or a second index to keep.
func (sh *shard) sweep(now time.Time) {
	looked := 0
	for name, l := range sh.locks {
		if l.dead(now) {
			delete(sh.locks, name)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

func (s *Store) deliver(e store.Event) {
	s.mu.Lock()
	sinks := s.sinks
	s.mu.Unlock()
	for _, k := range sinks {
		k.call(e)
	}
}

// ready says why an operation cannot start: the handle is closed or ctx over.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Acquire implements [store.Store]. It does not block.
func (s *Store) Acquire(ctx context.Context, req store.Request) (g store.Grant, err error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	s.on(req.Name, true, func(l *lock, t *turn) { g, err = l.acquire(t, req, s) })
	return g, err
}

// Renew implements [store.Store]. It does not block.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	for i, ref := range holds {
		if err := s.ready(ctx); err != nil {
			results[i] = err
			continue
		}
		results[i] = store.ErrLost
		s.on(ref.Name, false, func(l *lock, t *turn) { results[i] = l.renew(t, ref) })
	}
	return results
}

// Release implements [store.Store]. It does not block.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := store.ErrLost
	s.on(ref.Name, ref.Bury, func(l *lock, t *turn) { err = l.release(t, ref) })
	return err
}

// Break implements [store.Breaker]. It does not block.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	s.on(name, false, func(l *lock, t *turn) { broken = l.breakAll(t) })
	return broken, nil
}

// RaiseToken implements [store.TokenRaiser]. It does not block.
func (s *Store) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (raised uint64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = store.ErrLost
	s.on(ref.Name, false, func(l *lock, t *turn) { raised, err = l.raise(t, ref.ID, token, tokens) })
	return raised, err
}

// Incarnation implements [store.Incarnator]: the same as long as the process
// lives, with the longest age, for nothing can have been lost before. It does
// not block.
func (s *Store) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	return s.locks.incarnation, math.MaxInt64, s.ready(ctx)
}

// Inspect implements [store.Store]. It does not block.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := s.ready(ctx); err != nil {
		return store.State{}, err
	}
	state := store.State{Name: name}
	s.on(name, false, func(l *lock, t *turn) { l.inspect(t, &state) })
	state.Token = s.locks.tokens.Load()
	return state, nil
}

// List implements [store.Lister]. It does not block; it copies the names of
// one shard after the other, so it is no snapshot.
func (s *Store) List(ctx context.Context) ([]string, error) {
	var names []string
	for i := range s.locks.shards {
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		sh, now := &s.locks.shards[i], time.Now()
		sh.mu.Lock()
		for name, l := range sh.locks {
			if l.used(now) {
				names = append(names, name)
			}
		}
		sh.mu.Unlock()
	}
	return names, nil
}

// Listen implements [store.Store]. Sinks run on the goroutine of the operation
// that granted.
func (s *Store) Listen(call func(store.Event)) (stop func()) {
	k := &sink{call}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.sinks = append(s.sinks[:len(s.sinks):len(s.sinks)], k)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		var rest []*sink
		for _, other := range s.sinks {
			if other != k {
				rest = append(rest, other)
			}
		}
		s.sinks = rest
	}
}

// MinTTL implements [store.Store]: 10 ms.
func (s *Store) MinTTL() time.Duration { return minTTL }

// Close implements [store.Store]. Other handles on the same locks go on; holds
// and places taken through this one are left to their deadlines.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Store(true)
	s.sinks = nil
	return nil
}
