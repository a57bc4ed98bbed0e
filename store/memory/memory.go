// Package memory is a dlock store inside the process: for unit tests, for
// programs of one process, and as the reference of the lock model. The model
// itself is package model; this package keeps its records in maps.
//
// It starts no goroutine and no timer: the next operation that looks at an
// expired entry removes it. It works inside a testing/synctest bubble.
package memory

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

// minTTL leaves a hold some validity beside the core's safety margin (1 % + 2 ms).
const minTTL = 10 * time.Millisecond

// Store is one handle on a set of locks in memory. It is safe for concurrent
// use. Holds and queues are gone when the last handle is; they do not outlive
// the process.
type Store struct {
	locks  *locks
	id     string // which handle a waiter is queued through
	closed atomic.Bool

	mu    sync.Mutex // held while sinks and locks.handles change together
	sinks sinks.List
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Breaker     = (*Store)(nil)
	_ store.Lister      = (*Store)(nil)
	_ store.TokenRaiser = (*Store)(nil)
	_ store.Incarnator  = (*Store)(nil)
)

// New returns a handle on a new, empty set of locks.
func New() *Store { return newLocks().handle() }

// Peer returns another handle on the same locks, such as a second process
// would have. It sees the same holds and queues. It gets the events of the
// requests that were queued through it, and of no others.
func (s *Store) Peer() *Store { return s.locks.handle() }

// ready says why an operation cannot start: the handle is closed or ctx ended.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Acquire implements [store.Store]. It does not block.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	sh, c := s.locks.begin(req.Name)
	g, err := sh.record(req.Name, c.Now).Acquire(&c, req, s.id)
	s.locks.end(sh, req.Name, &c)
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
		sh, c := s.locks.begin(ref.Name)
		if r := sh.records[ref.Name]; r != nil {
			results[i] = r.Renew(&c, ref)
		}
		s.locks.end(sh, ref.Name, &c)
	}
	return results
}

// Release implements [store.Store]. It does not block.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := store.ErrLost
	sh, c := s.locks.begin(ref.Name)
	r := sh.records[ref.Name]
	if r == nil && ref.Bury {
		r = sh.record(ref.Name, c.Now)
	}
	if r != nil {
		err = r.Release(&c, ref)
	}
	s.locks.end(sh, ref.Name, &c)
	return err
}

// Break implements [store.Breaker]. It does not block.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	sh, c := s.locks.begin(name)
	if r := sh.records[name]; r != nil {
		broken = r.Break(&c)
	}
	s.locks.end(sh, name, &c)
	return broken, nil
}

// RaiseToken implements [store.TokenRaiser]. It does not block.
func (s *Store) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (raised uint64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = store.ErrLost
	sh, c := s.locks.begin(ref.Name)
	if r := sh.records[ref.Name]; r != nil {
		raised, err = r.Raise(&c, &s.locks.tokens, ref.ID, token, tokens)
	}
	s.locks.end(sh, ref.Name, &c)
	return raised, err
}

// Incarnation implements [store.Incarnator]. The id is the same for as long as
// the process lives, and the age is the longest duration: nothing can have been
// lost before. It does not block.
func (s *Store) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	return s.locks.incarnation, math.MaxInt64, s.ready(ctx)
}

// Inspect implements [store.Store]. It does not block.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := s.ready(ctx); err != nil {
		return store.State{}, err
	}
	state := store.State{Name: name}
	sh, c := s.locks.begin(name)
	if r := sh.records[name]; r != nil {
		state = r.Inspect(&c, name)
	} else {
		state.Token = s.locks.tokens.Last()
	}
	s.locks.end(sh, name, &c)
	return state, nil
}

// List implements [store.Lister]. It does not block. It copies the names of one
// shard after another, so it is no snapshot.
func (s *Store) List(ctx context.Context) ([]string, error) {
	var names []string
	for i := range s.locks.shards {
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		names = s.locks.shards[i].inUse(names, s.locks.now())
	}
	return names, nil
}

// Listen implements [store.Store]. A sink runs on the goroutine of the
// operation that caused the event.
func (s *Store) Listen(sink func(store.Event)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.sinks.Listen(sink)
	s.register()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		end()
		s.register()
	}
}

// register has events find the handle only while it has sinks, so a handle that is
// dropped without Close costs nothing. s.mu is locked.
func (s *Store) register() {
	if s.sinks.Any() {
		s.locks.handles.Store(s.id, s)
	} else {
		s.locks.handles.Delete(s.id)
	}
}

// MinTTL implements [store.Store]: 10 ms.
func (s *Store) MinTTL() time.Duration { return minTTL }

// Close implements [store.Store]. Other handles on the same locks go on. Holds
// and places taken through this handle are left to their deadlines.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Store(true)
	s.sinks.Close()
	s.register()
	return nil
}
