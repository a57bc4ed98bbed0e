package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

const (
	// firstRedial and lastRedial are the pauses before a server that cannot be reached is tried again.
	firstRedial = 50 * time.Millisecond
	lastRedial  = 2 * time.Second
	// stragglers is how long AwaitMajority waits for a minority that does not answer.
	stragglers = time.Second
	// hangUp is how long Close waits for a connection that is being opened.
	hangUp = time.Second
)

// Redialer is a store whose server may be down when it is opened, as nodes of a quorum may. It connects in the
// background, and goes on trying until it has; before that all of its calls fail with an error that says why, as
// calls do when a server is down. After that it passes calls on to the store. It is safe for concurrent use.
type Redialer struct {
	minTTL  time.Duration
	closing chan struct{}
	tried   chan struct{} // closed after the first try
	done    chan struct{} // closed when connected, or closed

	sinks sinks.List

	mu     sync.Mutex
	store  Dialed // nil: not connected
	err    error  // why it cannot be used; nil: it is connected
	closed bool
}

var _ Dialed = (*Redialer)(nil)

// Dialed is what a node of a quorum that may be down has to be once it is connected.
type Dialed interface {
	store.Store
	store.Breaker
	store.Lister
	store.TokenRaiser
	store.Incarnator
}

// Redial returns a handle on the store that open connects to, at once and whether or not it can be reached. It calls
// open until that succeeds. MinTTL is that of the store, which is asked for it before it is connected.
func Redial(open func() (Dialed, error), minTTL time.Duration) *Redialer {
	r := &Redialer{
		minTTL: minTTL, closing: make(chan struct{}), tried: make(chan struct{}), done: make(chan struct{}),
		err: errors.New("not connected yet"),
	}
	go r.connect(open)
	return r
}

// connect tries until it is connected or closed.
func (r *Redialer) connect(open func() (Dialed, error)) {
	defer close(r.done)
	for pause := firstRedial; ; pause = min(2*pause, lastRedial) {
		s, err := open()
		r.opened(s, err)
		if pause == firstRedial {
			close(r.tried)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.closing:
			return
		}
	}
}

// opened notes what came of a try.
func (r *Redialer) opened(s Dialed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err != nil {
		return
	}
	if r.closed {
		go s.Close() // not under the lock, for it takes a round trip
		return
	}
	r.store = s
	s.Listen(r.sinks.Tell)
}

// pass calls f with the store, or returns why there is none.
func pass[T any](r *Redialer, f func(Dialed) (T, error)) (value T, err error) {
	r.mu.Lock()
	s, err, closed := r.store, r.err, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return value, store.ErrClosed
	case err != nil: // what is certain of a try to connect is not of the call
		return value, fmt.Errorf("quorum: not connected: %v", err)
	}
	return f(s)
}

// Acquire implements [store.Store].
func (r *Redialer) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	return pass(r, func(s Dialed) (store.Grant, error) { return s.Acquire(ctx, req) })
}

// Renew implements [store.Store].
func (r *Redialer) Renew(ctx context.Context, holds []store.Ref) []error {
	results, err := pass(r, func(s Dialed) ([]error, error) { return s.Renew(ctx, holds), nil })
	if err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	return results
}

// Release implements [store.Store].
func (r *Redialer) Release(ctx context.Context, ref store.Ref) error {
	_, err := pass(r, func(s Dialed) (any, error) { return nil, s.Release(ctx, ref) })
	return err
}

// RaiseToken implements [store.TokenRaiser].
func (r *Redialer) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	return pass(r, func(s Dialed) (uint64, error) { return s.RaiseToken(ctx, ref, token, tokens) })
}

// Incarnation implements [store.Incarnator].
func (r *Redialer) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	id, err = pass(r, func(s Dialed) (id string, err error) {
		id, age, err = s.Incarnation(ctx)
		return id, err
	})
	return id, age, err
}

// Vote implements [store.Voter], if the store is one.
func (r *Redialer) Vote(ctx context.Context, req store.Request, token uint64) (store.Vote, error) {
	return pass(r, func(s Dialed) (store.Vote, error) {
		if voter, ok := s.(store.Voter); ok {
			return voter.Vote(ctx, req, token)
		}
		return store.Vote{}, store.ErrUnsupported
	})
}

// Inspect implements [store.Store].
func (r *Redialer) Inspect(ctx context.Context, name string) (store.State, error) {
	return pass(r, func(s Dialed) (store.State, error) { return s.Inspect(ctx, name) })
}

// Break implements [store.Breaker].
func (r *Redialer) Break(ctx context.Context, name string) (int, error) {
	return pass(r, func(s Dialed) (int, error) { return s.Break(ctx, name) })
}

// List implements [store.Lister].
func (r *Redialer) List(ctx context.Context) ([]string, error) {
	return pass(r, func(s Dialed) ([]string, error) { return s.List(ctx) })
}

// Listen implements [store.Store].
func (r *Redialer) Listen(sink func(store.Event)) (stop func()) { return r.sinks.Listen(sink) }

// MinTTL implements [store.Store].
func (r *Redialer) MinTTL() time.Duration { return r.minTTL }

// Close implements [store.Store]. If a connection is just being opened it waits for that, a second at most; what is
// opened later is closed at once.
func (r *Redialer) Close() error {
	r.mu.Lock()
	s, again := r.store, r.closed
	r.closed = true
	r.mu.Unlock()
	if again {
		return nil
	}
	close(r.closing)
	if s != nil {
		return s.Close()
	}
	select {
	case <-r.done:
	case <-time.After(hangUp):
	}
	return nil
}

// AwaitMajority waits until each node has been tried once, or a majority is connected and the others had their time.
// With no majority it returns the errors of all.
func AwaitMajority(nodes []*Redialer) error {
	tried := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			<-n.tried
			_, err := pass(n, func(Dialed) (any, error) { return nil, nil })
			tried <- err
		}()
	}
	var errs []error
	var late <-chan time.Time
	for i := range nodes {
		select {
		case err := <-tried:
			if err != nil {
				errs = append(errs, err)
			} else if i+1-len(errs) == len(nodes)/2+1 {
				late = time.After(stragglers)
			}
		case <-late:
			return nil
		}
	}
	if late != nil || len(nodes) == 0 {
		return nil
	}
	return fmt.Errorf("no majority of the servers can be reached: %w", errors.Join(errs...))
}
