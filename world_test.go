package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/require"
)

// The defaults that tests calculate with, written out once more on purpose: a
// test that took them from the package would follow them wherever they went.
const (
	ttl     = 30 * time.Second
	waitTTL = 5 * time.Second
	timeout = 3 * time.Second
	probe   = waitTTL / 3 // a waiter asks at least that often
	askGap  = 10 * time.Millisecond

	// patience is how long a test waits for anything: more than all of that.
	patience = time.Hour
)

// validity is what a claim has of a lease: all but 1 % and 2 ms.
func validity(lease time.Duration) time.Duration {
	return lease - lease/100 - 2*time.Millisecond
}

// world is two processes over one store, each with faults of its own, inside a
// synctest bubble. When the test ends, nothing may be left behind and no two
// claims may have overlapped.
type world struct {
	t      *testing.T
	memory *memory.Store // the test's own handle, without faults
	s1, s2 *faultstore.Store
	c1, c2 *dlock.Client
	start  time.Time

	clients []*dlock.Client
	gates   []gate

	storeLostData bool // claims may overlap: no lock can help that

	mu     sync.Mutex
	claims []*claim
	lost   []*dlock.Hold // what OnLost was told, of both clients
}

// inWorld runs test in a bubble, with two clients of these options (nil: the
// defaults).
func inWorld(t *testing.T, opts *dlock.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, memory: memory.New(), start: time.Now()}
		t.Cleanup(w.abandon)
		w.s1, w.s2 = faultstore.New(w.memory.Peer()), faultstore.New(w.memory.Peer())
		w.c1, w.c2 = w.client(w.s1, opts), w.client(w.s2, opts)
		test(t, w)
		w.end()
	})
}

func (w *world) client(s store.Store, opts *dlock.Options) *dlock.Client {
	w.t.Helper()
	o := dlock.Options{}
	if opts != nil {
		o = *opts
	}
	told := o.OnLost
	o.OnLost = func(h *dlock.Hold) {
		w.mu.Lock()
		w.lost = append(w.lost, h)
		w.mu.Unlock()
		if told != nil {
			told(h)
		}
	}
	c, err := dlock.New(s, &o)
	require.NoError(w.t, err)
	w.clients = append(w.clients, c)
	return c
}

// abandon lets everything in the bubble of a failed test come to its end: what
// is left blocked there would end the whole run by a panic.
func (w *world) abandon() {
	if !w.t.Failed() {
		return
	}
	for _, g := range w.gates {
		g.open()
	}
	for _, c := range w.clients {
		_ = c.Close()
	}
	time.Sleep(patience)
}

// gate is a moment that the test chooses, for faults that wait for one.
type gate struct {
	ch   chan struct{}
	open func()
}

func (w *world) gate() gate {
	ch := make(chan struct{})
	g := gate{ch, sync.OnceFunc(func() { close(ch) })}
	w.gates = append(w.gates, g)
	return g
}

// end asserts that nothing is left: at the store, in the clients, of goroutines
// (the bubble does that), and that claims excluded each other.
func (w *world) end() {
	w.t.Helper()
	w.nothingLeft()
	for _, c := range w.clients {
		require.NoError(w.t, c.Close())
	}
	w.exclusive()
}

// nothingLeft asserts that all clients are at rest and the store is empty.
func (w *world) nothingLeft() {
	w.t.Helper()
	synctest.Wait()
	for i, c := range w.clients {
		require.Empty(w.t, dlock.Unfinished(c), "left in client %d", i+1)
	}
	names, err := w.memory.List(context.Background())
	require.NoError(w.t, err)
	for _, name := range names {
		require.Equal(w.t, store.State{}, w.inspect(name), "left at the store")
	}
}

// after returns the time since the test began.
func (w *world) after(t time.Time) time.Duration { return t.Sub(w.start) }

// sleepUntil lets time pass until d after the test began.
func (w *world) sleepUntil(d time.Duration) {
	time.Sleep(time.Until(w.start.Add(d)))
	synctest.Wait()
}

// toldLost returns how many losses OnLost was told of.
func (w *world) toldLost() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lost)
}

// inspect asks the store itself.
func (w *world) inspect(name string) store.State {
	w.t.Helper()
	state, err := w.memory.Inspect(context.Background(), name)
	require.NoError(w.t, err)
	return state
}

// outsider asks the store for name as a process would that never renews, asks
// again or releases: one that died the moment after.
func (w *world) outsider(name, id string, mode store.Mode) store.Grant {
	w.t.Helper()
	g, err := w.memory.Acquire(context.Background(), store.Request{
		Name: name, Owner: "owner-" + id, ID: id, Mode: mode, TTL: ttl, WaitTTL: waitTTL, Queue: true, Tokens: 1,
	})
	require.NoError(w.t, err)
	return g
}

// restart replaces the store by an empty one whose tokens go on.
func (w *world) restart() {
	w.t.Helper()
	last := w.inspect("any").Token
	w.memory = memory.New()
	req := store.Request{Name: "any", Owner: "o", ID: "any", TTL: ttl, WaitTTL: waitTTL, Tokens: int(last) + 1}
	_, err := w.memory.Acquire(context.Background(), req)
	require.NoError(w.t, err)
	require.NoError(w.t, w.memory.Release(context.Background(), store.Ref{Name: "any", ID: "any"}))
	w.s1.Swap(w.memory.Peer())
	w.s2.Swap(w.memory.Peer())
	w.storeLostData = true
}
