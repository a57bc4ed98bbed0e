package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// server is the store that all clients share. It can lose its data, at one
// moment for all of them, and keeps the counter of tokens when it does, as
// stores must whose tokens follow the clock.
type server struct {
	history *History

	mu      sync.RWMutex // held while data is lost; calls hold it for reading
	memory  *memory.Store
	handles []*handle
}

func newServer(h *History) *server { return &server{history: h, memory: memory.New()} }

// handle returns one client's handle.
func (s *server) handle() store.Store {
	h := &handle{server: s, short: make(map[string]int)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = append(s.handles, h)
	h.connect()
	return h
}

// token is the last one that was issued, when what has expired of a name has made
// way for those who waited.
func (s *server) token(name string) uint64 {
	state, err := s.memory.Inspect(context.Background(), name)
	if err != nil {
		panic(err)
	}
	return state.Token
}

// lose forgets everything but how far the tokens have come.
func (s *server) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, token := s.history.now(), s.token("any")
	s.memory = memory.New()
	ctx := context.Background()
	seed := store.Request{Name: "seed", Owner: "seed", ID: "seed", TTL: time.Hour, WaitTTL: time.Hour, Tokens: int(token) + 1000}
	_, err := s.memory.Acquire(ctx, seed)
	if err = errors.Join(err, s.memory.Release(ctx, store.Ref{Name: "seed", Owner: "seed", ID: "seed", TTL: time.Hour})); err != nil {
		panic(err)
	}
	for _, h := range s.handles {
		h.connect()
	}
	s.history.mark("", from, token)
}

// force removes all holds of a name, as an operator may.
func (s *server) force(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, token := s.history.now(), s.token(name)
	if _, err := s.memory.Break(context.Background(), name); err != nil {
		panic(err)
	}
	s.history.mark(name, from, token)
}

// left returns the names that are in use.
func (s *server) left() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names, err := s.memory.List(context.Background())
	if err != nil {
		panic(err)
	}
	return names
}

// close has nothing to do.
func (s *server) close() {}

// handle is the end of a link at the store: nothing fails between the two, so
// what it writes down is what happened.
type handle struct {
	server *server
	peer   *memory.Store

	mu    sync.Mutex
	sink  func(store.Event)
	short map[string]int // by id: of how many tokens fewer than asked for its grant tells
}

// connect takes a new peer. server.mu is held.
func (h *handle) connect() {
	if h.peer != nil {
		_ = h.peer.Close() // it always succeeds
	}
	h.peer = h.server.memory.Peer()
	h.peer.Listen(h.hear)
}

func (h *handle) hear(e store.Event) {
	h.server.history.promoted(e)
	h.mu.Lock()
	sink := h.sink
	e.Short = h.short[e.ID]
	h.mu.Unlock()
	if sink != nil {
		sink(e)
	}
}

// enter begins a call: nothing is lost until the returned function is called.
func (h *handle) enter() (from Moment, leave func()) {
	h.server.mu.RLock()
	return h.server.history.now(), h.server.mu.RUnlock
}

func (h *handle) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	from, leave := h.enter()
	defer leave()
	asked := req.Tokens
	if most := h.server.history.Plan.Scant; most > 0 && asked > most {
		req.Tokens = most
		h.mu.Lock()
		h.short[req.ID] = asked - most
		h.mu.Unlock()
	}
	g, err := h.peer.Acquire(context.WithoutCancel(ctx), req) // it has arrived, whoever still waits
	if g.Held {
		g.Short = asked - req.Tokens
	}
	for _, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, g, err)
	}
	return g, err
}

func (h *handle) Renew(ctx context.Context, refs []store.Ref) []error {
	from, leave := h.enter()
	defer leave()
	results := h.peer.Renew(context.WithoutCancel(ctx), refs)
	for i, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, store.Grant{}, results[i])
	}
	return results
}

func (h *handle) Release(ctx context.Context, ref store.Ref) error {
	from, leave := h.enter()
	defer leave()
	err := h.peer.Release(context.WithoutCancel(ctx), ref)
	for _, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, store.Grant{}, err)
	}
	return err
}

func (h *handle) Listen(sink func(store.Event)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sink = sink
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sink = nil
	}
}

func (h *handle) Inspect(ctx context.Context, name string) (store.State, error) {
	h.server.mu.RLock()
	defer h.server.mu.RUnlock()
	return h.peer.Inspect(ctx, name)
}

func (h *handle) MinTTL() time.Duration {
	h.server.mu.RLock()
	defer h.server.mu.RUnlock()
	return h.peer.MinTTL()
}

// Close does nothing: a link may still bring something to an end that its client has left.
func (h *handle) Close() error { return nil }
