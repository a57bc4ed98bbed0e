package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	// firstRedial and lastRedial are the pauses before a server that cannot be
	// reached is tried again.
	firstRedial = 50 * time.Millisecond
	lastRedial  = 2 * time.Second
	// hangUp is how long Close waits for a connection that is being opened.
	hangUp = time.Second
)

// Node is a store whose server may be down when it is opened, as nodes of a quorum
// may. It connects in the background, and goes on trying until it has; before that
// all of its calls fail with an error that says why, as calls do when a server is
// down. After that it is a [Store]. It is safe for concurrent use.
type Node struct {
	url     string
	closing chan struct{}
	tried   chan struct{} // closed after the first try
	done    chan struct{} // closed when connected, or closed

	mu     sync.Mutex
	store  *Store                        // nil: not connected
	err    error                         // of the last try
	sinks  map[*func(store.Event)]func() // what ends each of them at the store
	closed bool
}

var (
	_ store.Store       = (*Node)(nil)
	_ store.Breaker     = (*Node)(nil)
	_ store.Lister      = (*Node)(nil)
	_ store.TokenRaiser = (*Node)(nil)
	_ store.Incarnator  = (*Node)(nil)
)

// OpenNode returns a handle on the server of a URL as [Open] takes it, at once and
// whether or not the server can be reached. An error says what is wrong with the URL.
// For a server of a quorum that has options: quorum.NewWithOptions takes nodes.
func OpenNode(rawURL string) (*Node, error) {
	_, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if _, err := New(noClient{}, opts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidURL, err)
	}
	n := &Node{
		url: rawURL, closing: make(chan struct{}), tried: make(chan struct{}), done: make(chan struct{}),
		err: errors.New("redis: not connected yet"), sinks: make(map[*func(store.Event)]func()),
	}
	go n.connect()
	return n, nil
}

// connect tries until it is connected or closed.
func (n *Node) connect() {
	defer close(n.done)
	for pause := firstRedial; ; pause = min(2*pause, lastRedial) {
		s, err := Open(n.url)
		over := n.opened(s, err)
		if pause == firstRedial {
			close(n.tried)
		}
		if over {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-n.closing:
			timer.Stop()
			return
		}
	}
}

// opened notes what came of a try, and reports whether it was the last.
func (n *Node) opened(s *Store, err error) (over bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.err = err
		return n.closed
	}
	if n.closed {
		go s.Close() // not under the lock, for it takes a round trip
		return true
	}
	n.store, n.err = s, nil
	for sink := range n.sinks {
		n.sinks[sink] = s.Listen(*sink)
	}
	return true
}

// now returns the store, or why there is none.
func (n *Node) now() (*Store, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, store.ErrClosed
	case n.store == nil:
		// What is certain of a try to connect is not of the call.
		return nil, fmt.Errorf("redis: not connected: %v", n.err)
	}
	return n.store, nil
}

// Acquire implements [store.Store].
func (n *Node) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	s, err := n.now()
	if err != nil {
		return store.Grant{}, err
	}
	return s.Acquire(ctx, req)
}

// Renew implements [store.Store].
func (n *Node) Renew(ctx context.Context, holds []store.Ref) []error {
	s, err := n.now()
	if err != nil {
		results := make([]error, len(holds))
		for i := range results {
			results[i] = err
		}
		return results
	}
	return s.Renew(ctx, holds)
}

// Release implements [store.Store].
func (n *Node) Release(ctx context.Context, ref store.Ref) error {
	s, err := n.now()
	if err != nil {
		return err
	}
	return s.Release(ctx, ref)
}

// RaiseToken implements [store.TokenRaiser].
func (n *Node) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	s, err := n.now()
	if err != nil {
		return 0, err
	}
	return s.RaiseToken(ctx, ref, token, tokens)
}

// Incarnation implements [store.Incarnator].
func (n *Node) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	s, err := n.now()
	if err != nil {
		return "", 0, err
	}
	return s.Incarnation(ctx)
}

// Inspect implements [store.Store].
func (n *Node) Inspect(ctx context.Context, name string) (store.State, error) {
	s, err := n.now()
	if err != nil {
		return store.State{}, err
	}
	return s.Inspect(ctx, name)
}

// Break implements [store.Breaker].
func (n *Node) Break(ctx context.Context, name string) (int, error) {
	s, err := n.now()
	if err != nil {
		return 0, err
	}
	return s.Break(ctx, name)
}

// List implements [store.Lister].
func (n *Node) List(ctx context.Context) ([]string, error) {
	s, err := n.now()
	if err != nil {
		return nil, err
	}
	return s.List(ctx)
}

// Listen implements [store.Store].
func (n *Node) Listen(sink func(store.Event)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := &sink
	n.sinks[key] = func() {}
	if n.store != nil {
		n.sinks[key] = n.store.Listen(sink)
	}
	return func() {
		n.mu.Lock()
		end := n.sinks[key]
		delete(n.sinks, key)
		n.mu.Unlock()
		if end != nil {
			end()
		}
	}
}

// MinTTL implements [store.Store]: 10 ms.
func (n *Node) MinTTL() time.Duration { return minTTL }

// Close implements [store.Store]. If a connection is just being opened it waits
// for that, a second at most; what is opened later is closed at once.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	s := n.store
	n.mu.Unlock()
	close(n.closing)
	timer := time.NewTimer(hangUp)
	defer timer.Stop()
	select {
	case <-n.done:
	case <-timer.C:
	}
	if s != nil {
		return s.Close()
	}
	return nil
}
