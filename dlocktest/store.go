package dlocktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// ErrInjected is what a call fails with after [Store.Fail] and [Store.LoseReplies].
var ErrInjected = errors.New("dlocktest: injected fault")

// All means all calls until [Store.Heal], as the argument of Fail, Hang and LoseReplies.
const All = -1

// Store is a store in memory whose calls can be made to fail. Its faults hit the calls in the
// order in which the test asked for them. It is safe for concurrent use.
//
// The calls of the store are requests for a lock, renewals and releases. One call of dlock may
// make several of them, because it tries again.
type Store struct {
	t      testing.TB
	memory *memory.Store
	looks  *memory.Store // a handle that the program does not close
	faults *faultstore.Store

	mu      sync.Mutex
	planned []*plan
	seen    map[string]bool // the short ids of requests that came through this store
	doomed  map[string]bool // the short ids of holds that Lose was called for
}

// plan is one fault and how many calls it still hits.
type plan struct {
	fault faultstore.Fault
	left  int // All: until Heal
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

func newStore(t testing.TB, m *memory.Store) *Store {
	s := &Store{t: t, memory: m, looks: m.Peer(), faults: faultstore.New(m), seen: make(map[string]bool), doomed: make(map[string]bool)}
	s.faults.On(faultstore.Any, faultstore.Every, s.next)
	s.faults.OnEvent(func(int, store.Event) bool { return s.down() }, faultstore.DropEvent())
	return s
}

// Fail lets the next n calls of the store fail with ErrInjected. The store does not do what
// they ask for. The caller cannot know that, as with a broken connection, and tries again.
func (s *Store) Fail(n int) { s.plan(n, faultstore.Answer(ErrInjected)) }

// Hang lets the next n calls of the store wait until their time is over. The store does not
// do what they ask for.
func (s *Store) Hang(n int) { s.plan(n, faultstore.Mute()) }

// LoseReplies lets the store do what the next n calls ask for, and lets the calls fail with
// ErrInjected.
func (s *Store) LoseReplies(n int) { s.plan(n, faultstore.AnswerAfter(ErrInjected)) }

// Heal ends all faults. Waiters ask the store again, as after a reconnection.
func (s *Store) Heal() {
	s.mu.Lock()
	s.planned = nil
	s.mu.Unlock()
	s.faults.Emit(store.Event{})
}

func (s *Store) plan(n int, f faultstore.Fault) {
	if n < All {
		s.t.Errorf("dlocktest: %d calls cannot be hit: n is their number, or All", n)
		return
	}
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = append(s.planned, &plan{f, n})
}

// next applies the fault that is planned for this call, if there is one.
func (s *Store) next(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
	if f := s.take(); f != nil {
		return f(ctx, deliver)
	}
	return deliver(ctx)
}

func (s *Store) take() faultstore.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.planned) == 0 {
		return nil
	}
	p := s.planned[0]
	if p.left > 0 {
		if p.left--; p.left == 0 {
			s.planned = s.planned[1:]
		}
	}
	return p.fault
}

// down reports that all calls are hit, so that no event may arrive either.
func (s *Store) down() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.planned) > 0 && s.planned[0].left < 0
}

// Lose takes the hold away at the store, as if the store had lost its data, and returns when
// the holder knows: hold.Done is closed then. The holder is told with its next renewal, after a
// third of the lease at most. A hold without renewal is lost when its lease ends.
//
// The hold is one of a client on this store. Holds of its owner with the same token are lost
// with it, and so are readers of its client that share its hold at the store. Lose does not
// wait until they are told. The store must answer meanwhile.
func (s *Store) Lose(hold *dlock.Hold) {
	s.t.Helper()
	// A hand-over within the process takes a later token of the same grant. Several holds of one owner
	// may have one token: they go together.
	var token uint64
	var ids []string
	for _, holder := range s.holders(hold.Name()) {
		if holder.Token > hold.Token() || holder.Token < token || !s.granted(holder.ID) {
			continue
		}
		if holder.Token > token {
			token, ids = holder.Token, nil
		}
		ids = append(ids, holder.ID)
	}
	if hold.Err() != nil || len(ids) == 0 {
		s.t.Errorf("dlocktest: Lose: lock %q is not held through this store", hold.Name())
		return
	}
	s.mu.Lock()
	for _, id := range ids {
		s.doomed[id] = true
	}
	s.mu.Unlock()
	<-hold.Done()
}

// granted reports that the request with this short id came through this store.
func (s *Store) granted(shortID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[shortID]
}

// Acquire implements [store.Store].
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	s.mu.Lock()
	s.seen[store.Short(req.ID)] = true
	s.mu.Unlock()
	return s.faults.Acquire(ctx, req)
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	for _, ref := range holds {
		s.mu.Lock()
		doomed := s.doomed[store.Short(ref.ID)]
		s.mu.Unlock()
		if doomed {
			_ = s.memory.Release(ctx, ref) // the renewal that follows finds nothing
		}
	}
	return s.faults.Renew(ctx, holds)
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, ref store.Ref) error { return s.faults.Release(ctx, ref) }

// Listen implements [store.Store].
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.faults.Listen(sink) }

// Inspect implements [store.Store]. No fault hits it.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	return s.memory.Inspect(ctx, name)
}

// List implements [store.Lister]. No fault hits it.
func (s *Store) List(ctx context.Context) ([]string, error) { return s.memory.List(ctx) }

// Break implements [store.Breaker]. No fault hits it.
func (s *Store) Break(ctx context.Context, name string) (int, error) {
	return s.memory.Break(ctx, name)
}

// MinTTL implements [store.Store].
func (s *Store) MinTTL() time.Duration { return s.faults.MinTTL() }

// Close implements [store.Store].
func (s *Store) Close() error { return s.faults.Close() }
