package zookeeper

import (
	"context"
	"maps"

	"github.com/dlock-go/dlock/store"
)

// maxKnown is how many names a handle remembers at least before it forgets those that
// no operation uses.
const maxKnown = 20000

// nameState is what a handle knows of a name. Its operations on a name go one
// after the other, since side by side all but one would have to begin again.
type nameState struct {
	turn  chan struct{} // holds a value while an operation is under way
	users int           // operations that have it or wait for it; guarded by Store.mu

	// known is the record as it was last seen, or nil. It belongs to the operation
	// that is under way.
	known *snapshot

	// contended says that another handle changes the record too: it is read before it
	// is written, which costs a call less than to begin again.
	contended bool
}

// guess is what was known of the record, and base that with which an operation begins, or nil if
// it reads first. The record is forgotten unless the operation goes well.
func (n *nameState) guess(op operation) (known, base *snapshot) {
	known, n.known = n.known, nil
	switch {
	case n.contended:
		return known, nil
	case known == nil && op.acquires:
		return nil, new(snapshot)
	}
	return known, known
}

// keep remembers a record for the next operation.
func (n *nameState) keep(seen *snapshot) {
	if seen.exists() {
		n.known = seen
	}
}

// lockName waits for the name's turn.
func (s *Store) lockName(ctx context.Context, name string) (*nameState, error) {
	s.mu.Lock()
	state := s.names[name]
	if state == nil {
		if len(s.names) >= s.maxNames {
			maps.DeleteFunc(s.names, func(_ string, n *nameState) bool { return n.users == 0 })
			s.maxNames = max(maxKnown, 2*len(s.names))
		}
		state = &nameState{turn: make(chan struct{}, 1)}
		s.names[name] = state
	}
	state.users++
	s.mu.Unlock()
	select {
	case state.turn <- struct{}{}:
		return state, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left(name, state)
		return nil, ctx.Err()
	}
}

// unlockName ends an operation on the name.
func (s *Store) unlockName(name string, state *nameState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left(name, state)
	<-state.turn
}

// left forgets a name that no operation uses and of which nothing is known.
func (s *Store) left(name string, state *nameState) {
	state.users--
	if state.users == 0 && state.known == nil && !state.contended {
		delete(s.names, name)
	}
}

// run calls f on a goroutine of its own and returns when f does or ctx ends,
// because the client's calls have no context.
func run[T any](ctx context.Context, s *Store, f func() (T, error)) (result T, err error) {
	if s.ctx.Err() != nil {
		return result, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	type answer struct {
		result T
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := f()
		done <- answer{result, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return result, ctx.Err()
	case <-s.ctx.Done():
		return result, errUnderWay
	}
}
