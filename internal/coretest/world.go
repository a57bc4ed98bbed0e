package coretest

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

// World is two processes over one store, each with its own faults, in a synctest bubble. At the
// end of the test nothing may be left behind and no two claims may have overlapped.
type World struct {
	T      *testing.T
	Memory *memory.Store // the test's own handle, without faults
	S1, S2 *faultstore.Store
	C1, C2 *dlock.Client
	Start  time.Time

	// StoreLostData says that claims may overlap, because the test deletes holds at the store.
	StoreLostData bool

	clients []*dlock.Client
	gates   []Gate

	mu     sync.Mutex
	claims []*Claim
	lost   []*dlock.Hold // reported by OnLost of both clients
}

// InWorld runs test in a bubble, with two clients of these options. Nil means the defaults.
func InWorld(t *testing.T, opts *dlock.Options, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &World{T: t, Memory: memory.New(), Start: time.Now()}
		t.Cleanup(w.unblock)
		w.S1, w.S2 = faultstore.New(w.Memory.Peer()), faultstore.New(w.Memory.Peer())
		w.C1, w.C2 = w.client(w.S1, opts), w.client(w.S2, opts)
		test(t, w)
		w.end()
	})
}

func (w *World) client(s store.Store, opts *dlock.Options) *dlock.Client {
	w.T.Helper()
	o := dlock.Options{}
	if opts != nil {
		o = *opts
	}
	onLost := o.OnLost
	o.OnLost = func(h *dlock.Hold) {
		w.mu.Lock()
		w.lost = append(w.lost, h)
		w.mu.Unlock()
		if onLost != nil {
			onLost(h)
		}
	}
	c, err := dlock.New(s, &o)
	require.NoError(w.T, err)
	w.clients = append(w.clients, c)
	return c
}

// unblock lets the goroutines of a failed test end. A goroutine that stays blocked in the bubble
// would end the whole run by a panic.
func (w *World) unblock() {
	if !w.T.Failed() {
		return
	}
	for _, g := range w.gates {
		g.Open()
	}
	for _, c := range w.clients {
		_ = c.Close()
	}
	time.Sleep(Patience)
}

// Gate is a moment that the test chooses. Faults can wait for it.
type Gate struct {
	C    chan struct{} // closed by Open
	Open func()
}

// Gate returns a new gate, which is opened at the latest when the test has failed.
func (w *World) Gate() Gate {
	ch := make(chan struct{})
	g := Gate{ch, sync.OnceFunc(func() { close(ch) })}
	w.gates = append(w.gates, g)
	return g
}

// end asserts that nothing is left at the store and in the clients, and that claims excluded
// each other. The bubble asserts that no goroutine is left.
func (w *World) end() {
	w.T.Helper()
	w.nothingLeft()
	for _, c := range w.clients {
		require.NoError(w.T, c.Close())
	}
	w.exclusive()
}

// nothingLeft asserts that all clients are at rest and the store is empty.
func (w *World) nothingLeft() {
	w.T.Helper()
	synctest.Wait()
	for i, c := range w.clients {
		require.Zero(w.T, Gauges(c), "left in client %d", i+1)
	}
	names, err := w.Memory.List(context.Background())
	require.NoError(w.T, err)
	for _, name := range names {
		require.Equal(w.T, store.State{}, w.Inspect(name), "left at the store")
	}
}

// After returns how long after the start of the test t is.
func (w *World) After(t time.Time) time.Duration { return t.Sub(w.Start) }

// SleepUntil sleeps until d after the start of the test.
func (w *World) SleepUntil(d time.Duration) {
	time.Sleep(time.Until(w.Start.Add(d)))
	synctest.Wait()
}

// Losses returns how many losses OnLost has reported.
func (w *World) Losses() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lost)
}

// Inspect asks the store itself, without faults.
func (w *World) Inspect(name string) store.State {
	w.T.Helper()
	return Inspect(w.T, w.Memory, name)
}

// DeadProcess sends one request for name and nothing after it: no renewal, no second request, no
// release. That is what a process leaves that dies right after its request.
func (w *World) DeadProcess(name, id string, mode store.Mode) store.Grant {
	w.T.Helper()
	g, err := w.Memory.Acquire(context.Background(), store.Request{
		Name: name, Owner: "owner-" + id, ID: id, Mode: mode, TTL: TTL, WaitTTL: WaitTTL, Queue: true, Tokens: 1,
	})
	require.NoError(w.T, err)
	return g
}

// RestartEmpty replaces the store by an empty one whose tokens go on from the old ones.
func (w *World) RestartEmpty() {
	w.T.Helper()
	last := w.Inspect("any").Token
	w.Memory = memory.New()
	req := store.Request{Name: "any", Owner: "o", ID: "any", TTL: TTL, WaitTTL: WaitTTL, Tokens: int(last) + 1}
	_, err := w.Memory.Acquire(context.Background(), req)
	require.NoError(w.T, err)
	require.NoError(w.T, w.Memory.Release(context.Background(), store.Ref{Name: "any", ID: "any"}))
	w.S1.Swap(w.Memory.Peer())
	w.S2.Swap(w.Memory.Peer())
	w.StoreLostData = true
}
