// Package locktest is what the tests of stores on real servers share: lock calls of a client that a
// test can watch, child processes that hold locks, wait for them and get killed, and what notices that nothing ran.
package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

const (
	// Patience is how long a test waits for what has no bound of its own.
	Patience = 30 * time.Second
	// Late is added to each bound on time, for a busy machine.
	Late = 400 * time.Millisecond
	// Soon is the bound of a few round trips on a busy machine. A waiter without a wake-up asks
	// again after 2 s.
	Soon = 1500 * time.Millisecond
)

// NewClient returns a client that is closed when the test ends. That Close has to succeed.
func NewClient(t testing.TB, on store.Store, o dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.New(on, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error("Close:", err)
		}
	})
	return c
}

// Lock takes a lock that is free.
func Lock(t testing.TB, c *dlock.Client, name string) *dlock.Hold {
	t.Helper()
	h, _ := Begin(t, c, name).Granted(Patience)
	return h
}

// Unlock fails the test if h cannot be unlocked.
func Unlock(t testing.TB, h *dlock.Hold) {
	t.Helper()
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// Waiting is a call of LockContext on its own goroutine.
type Waiting struct {
	t    testing.TB
	done chan struct{}
	h    *dlock.Hold
	err  error
	at   time.Time // when it returned
}

// Begin begins to wait for a lock.
func Begin(t testing.TB, c *dlock.Client, name string) *Waiting {
	return BeginWith(t, context.Background(), c, name)
}

// BeginWith is Begin with a context.
func BeginWith(t testing.TB, ctx context.Context, c *dlock.Client, name string) *Waiting {
	w := &Waiting{t: t, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.h, w.err = c.Mutex(name).LockContext(ctx)
		w.at = time.Now()
	}()
	return w
}

// Granted waits for the call. It returns the hold and the moment of the return, and fails the test
// if the call fails or takes longer than within.
func (w *Waiting) Granted(within time.Duration) (*dlock.Hold, time.Time) {
	w.t.Helper()
	w.returns(within)
	if w.err != nil {
		w.t.Fatal(w.err)
	}
	return w.h, w.at
}

// Failed waits for the call. It returns the moment of the return and the error.
func (w *Waiting) Failed(within time.Duration) (time.Time, error) {
	w.t.Helper()
	w.returns(within)
	if w.err == nil {
		w.t.Fatal("the lock was granted")
	}
	return w.at, w.err
}

func (w *Waiting) returns(within time.Duration) {
	w.t.Helper()
	began := time.Now()
	select {
	case <-w.done:
	case <-time.After(Patience):
		w.t.Fatal("LockContext does not return")
	}
	if took := w.at.Sub(began); took > within {
		w.t.Fatalf("LockContext returned after %v, want at most %v", took, within)
	}
}

// Waits asserts that the call has not returned.
func (w *Waiting) Waits() {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("LockContext has returned %v, %v", w.h, w.err)
	default:
	}
}

// Ended returns a channel that gets the moment in which h ends.
func Ended(h *dlock.Hold) <-chan time.Time {
	ended := make(chan time.Time, 1)
	go func() {
		<-h.Done()
		ended <- time.Now()
	}()
	return ended
}

// Poll waits until ok returns true.
func Poll(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// Queued waits until n requests wait for name at the store.
func Queued(t testing.TB, s store.Store, name string, n int) {
	t.Helper()
	Poll(t, strconv.Itoa(n)+" in the queue of "+name, Patience, func() bool {
		state, err := s.Inspect(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		return len(state.Queue) == n
	})
}

// HandOver has a free lock go from one client to another, which listens from then on: when it waits
// again it may ask but once, and then waits to be told. listens waits until it listens.
func HandOver(t testing.TB, s store.Store, from, to *dlock.Client, name string, listens func()) {
	t.Helper()
	h := Lock(t, from, name)
	waits := Begin(t, to, name)
	Queued(t, s, name, 1)
	listens()
	Unlock(t, h)
	h, _ = waits.Granted(Patience)
	Unlock(t, h)
}

// OnlyHold asserts that the hold is good and the only one that a store shows.
func OnlyHold(t testing.TB, h *dlock.Hold, state store.State) {
	t.Helper()
	if err := h.Err(); err != nil {
		t.Fatal(err)
	}
	if len(state.Holders) != 1 || state.Holders[0].Token != h.Token() {
		t.Fatalf("the store has the holders %+v, want one with token %d", state.Holders, h.Token())
	}
}

// Unused asserts that a store shows no holder and no waiter.
func Unused(t testing.TB, state store.State) {
	t.Helper()
	if len(state.Holders)+len(state.Queue) > 0 {
		t.Fatalf("left at the store: %+v", state)
	}
}

// InParallel calls f for 0 to n-1, all at once, and fails the test if one fails.
func InParallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = f(i) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// MustBe asserts that err matches want.
func MustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got the error %v, want %v", err, want)
	}
}

// Storm starts many goroutines that take the lock once each.
func Storm(c *dlock.Client, name string, goroutines int) error {
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			h, err := c.Mutex(name).LockContext(context.Background())
			if err == nil {
				err = h.Unlock()
			}
			errs <- err
		}()
	}
	var first error
	for range goroutines {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Churn waits a short time for one of a few locks, in a random mode, and holds it for a short time.
func Churn(c *dlock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(20*time.Millisecond))
	defer cancel()
	lock := c.RWMutex("churn " + strconv.Itoa(rand.N(5)))
	take := lock.LockContext
	if rand.N(2) == 0 {
		take = lock.RLockContext
	}
	if h, err := take(ctx); err == nil {
		time.Sleep(rand.N(2 * time.Millisecond))
		h.Unlock()
	}
}

// Failing is a TB that records why it failed, and panics then.
type Failing struct {
	testing.TB
	Why string
}

// Fatalf implements testing.TB.
func (f *Failing) Fatalf(format string, args ...any) {
	f.Why = strings.TrimSpace(fmt.Sprintf(format, args...))
	panic(f)
}

// Helper implements testing.TB.
func (f *Failing) Helper() {}
