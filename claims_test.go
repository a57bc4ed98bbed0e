package dlock_test

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/stretchr/testify/require"
)

// claim is the time in which somebody believes to hold exclusively.
type claim struct {
	name        string
	token       uint64
	from, until time.Time // until is zero while it lasts
}

// claim records that h holds from now until its Done closes.
func (w *world) claim(h *dlock.Hold) {
	k := &claim{name: h.Name(), token: h.Token(), from: time.Now()}
	w.mu.Lock()
	w.claims = append(w.claims, k)
	w.mu.Unlock()
	done := h.Done()
	go func() {
		<-done // at the latest when the client is closed
		w.mu.Lock()
		defer w.mu.Unlock()
		k.until = time.Now()
	}()
}

// exclusive asserts that claims on one name, in the order in which they began,
// ended before the next began, and that their tokens grow.
func (w *world) exclusive() {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	before := make(map[string]*claim)
	slices.SortStableFunc(w.claims, func(a, b *claim) int { return a.from.Compare(b.from) })
	for _, k := range w.claims {
		require.False(w.t, k.until.IsZero(), "claim on %q has not ended", k.name)
		if b := before[k.name]; b != nil {
			require.Greater(w.t, k.token, b.token, "token of %q", k.name)
			if !w.storeLostData {
				require.False(w.t, k.from.Before(b.until), "claims on %q overlap: until %v, from %v",
					k.name, b.until.Sub(w.start), k.from.Sub(w.start))
			}
		}
		before[k.name] = k
	}
}

// lock takes an exclusive lock that has to be free, and records the claim.
func (w *world) lock(c *dlock.Client, name string, opts ...dlock.LockOption) *dlock.Hold {
	w.t.Helper()
	h, err := c.Mutex(name, opts...).TryLockContext(w.t.Context())
	require.NoError(w.t, err)
	w.claim(h)
	return h
}

// wait is a call that takes a lock, on a goroutine of its own.
type wait struct {
	world *world
	done  chan struct{}
	hold  *dlock.Hold
	err   error
	at    time.Time // when it returned
}

// begin starts a call and returns when it has gone as far as it can at this moment.
func (w *world) begin(call func() (*dlock.Hold, error)) *wait {
	q := &wait{world: w, done: make(chan struct{})}
	go func() {
		defer close(q.done)
		defer func() {
			q.at = time.Now()
			if p := recover(); p != nil {
				q.err = fmt.Errorf("panic: %v", p)
			}
		}()
		q.hold, q.err = call()
	}()
	synctest.Wait()
	return q
}

// beginLock starts an exclusive LockContext and records the claim if it comes to one.
func (w *world) beginLock(c *dlock.Client, name string, opts ...dlock.LockOption) *wait {
	return w.begin(func() (*dlock.Hold, error) {
		h, err := c.Mutex(name, opts...).LockContext(w.t.Context())
		if err == nil {
			w.claim(h)
		}
		return h, err
	})
}

func (q *wait) returned() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// await waits for the call.
func (q *wait) await() {
	q.world.t.Helper()
	q.world.await(q.done)
}

// await receives from done, or waits until it is closed, but not for ever: where something renews or asks
// without end, a bubble never comes to rest.
func (w *world) await(done <-chan struct{}) {
	w.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(w.t, "what the test waits for does not happen")
	}
}

// granted waits for the call and returns its hold and the moment.
func (q *wait) granted() (*dlock.Hold, time.Time) {
	q.world.t.Helper()
	q.await()
	require.NoError(q.world.t, q.err)
	return q.hold, q.at
}

// failed waits for the call and returns the moment and its error.
func (q *wait) failed() (time.Time, error) {
	q.world.t.Helper()
	q.await()
	require.Error(q.world.t, q.err)
	require.Nil(q.world.t, q.hold)
	return q.at, q.err
}

// waits asserts that the call has not returned.
func (q *wait) waits() {
	q.world.t.Helper()
	synctest.Wait()
	if q.returned() {
		require.FailNow(q.world.t, "it does not wait", "it returned hold %v, error %v", q.hold, q.err)
	}
}

// ended waits for h to end and returns when it did, and why.
func (w *world) ended(h *dlock.Hold) (time.Time, error) {
	w.t.Helper()
	w.await(h.Done())
	at := time.Now()
	synctest.Wait()
	return at, h.Err()
}

// unlock releases h, which has to succeed.
func (w *world) unlock(h *dlock.Hold) {
	w.t.Helper()
	require.NoError(w.t, h.Unlock())
}

// unlockLost unlocks a lost hold, so that its owner may go on.
func (w *world) unlockLost(h *dlock.Hold) {
	w.t.Helper()
	require.ErrorIs(w.t, h.Unlock(), dlock.ErrLost)
}
