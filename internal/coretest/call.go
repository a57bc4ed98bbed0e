package coretest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/stretchr/testify/require"
)

// Call is one lock call on its own goroutine.
type Call struct {
	world *World
	done  chan struct{}
	hold  *dlock.Hold
	err   error
	at    time.Time // when it returned
}

// Begin starts a call and returns when the call waits or has returned.
func (w *World) Begin(call func() (*dlock.Hold, error)) *Call {
	q := &Call{world: w, done: make(chan struct{})}
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

// Returned reports whether the call has returned.
func (q *Call) Returned() bool { return Closed(q.done) }

// Await receives from done. It gives up after [Patience]: where a client renews or retries
// without end, a bubble never comes to rest.
func (w *World) Await(done <-chan struct{}) {
	w.T.Helper()
	select {
	case <-done:
	case <-time.After(Patience):
		require.FailNow(w.T, "the event that the test waits for does not happen")
	}
}

// Granted waits for the call. It returns the hold and the moment of the return.
func (q *Call) Granted() (*dlock.Hold, time.Time) {
	q.world.T.Helper()
	q.world.Await(q.done)
	require.NoError(q.world.T, q.err)
	return q.hold, q.at
}

// Failed waits for the call. It returns the moment of the return and the error.
func (q *Call) Failed() (time.Time, error) {
	q.world.T.Helper()
	q.world.Await(q.done)
	require.Error(q.world.T, q.err)
	require.Nil(q.world.T, q.hold)
	return q.at, q.err
}

// StillWaits asserts that the call has not returned.
func (q *Call) StillWaits() {
	q.world.T.Helper()
	synctest.Wait()
	if q.Returned() {
		require.FailNow(q.world.T, "the call does not wait", "it returned hold %v, error %v", q.hold, q.err)
	}
}
