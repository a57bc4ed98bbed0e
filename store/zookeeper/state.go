package zookeeper

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

// busyFor is how many operations read first after one that began again. Reading
// costs a call, and beginning again two.
const busyFor = 16

const (
	// maxKnown bounds for how many names a handle remembers the record.
	maxKnown = 20000

	// maxLooks bounds at how many names a handle looks to find one to forget.
	maxLooks = 8
)

// nameState is what a handle knows of a name. Its operations on a name go one
// after the other, since side by side all but one would have to begin again.
type nameState struct {
	turn  chan struct{} // holds a value while an operation is under way
	users int           // operations that have it or wait for it; guarded by Store.mu

	// known is the record as it was last seen, or nil. It belongs to the operation
	// that is under way.
	known *snapshot

	// busy is for how many operations more the record is read before it is written,
	// as another handle has changed it lately.
	busy int
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
		s.forgetIdle()
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

// forgetIdle makes room for a new name: it forgets names that no operation uses.
func (s *Store) forgetIdle() {
	looks := 0
	for name, state := range s.names {
		if len(s.names) < maxKnown || looks == maxLooks {
			return
		}
		looks++
		if state.users == 0 {
			delete(s.names, name)
		}
	}
}

// left forgets a name that no operation uses and of which nothing is known.
func (s *Store) left(name string, state *nameState) {
	state.users--
	if state.users == 0 && state.known == nil && state.busy == 0 {
		delete(s.names, name)
	}
}

// run calls f on a goroutine of its own and returns when f does or ctx ends,
// because the client's calls have no context.
func (s *Store) run(ctx context.Context, f func() error) error {
	if s.ctx.Err() != nil {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return errUnderWay
	}
}
