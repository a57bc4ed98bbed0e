package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// TestInside looks into handles on a real server.
func TestInside(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	t.Run("ClockSetBack", func(t *testing.T) { clockSetBack(t, e) })
	t.Run("ClockSetForward", func(t *testing.T) { clockSetForward(t, e) })
}

func opens(t *testing.T, e *zookeepertest.Ensemble) *Store {
	t.Helper()
	s, err := Open(e.URL())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func numbered(name string, n int) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%032x", n),
		TTL: 20 * time.Second, WaitTTL: 20 * time.Second, Tokens: 1,
	}
}

// lags makes what a handle knows of the leader's clock false by that time, as it is
// after the clock was set.
func (s *Store) lags(by time.Duration) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.low -= by
	s.clock.high -= by
}

// clockSetBack: a handle that last heard of the clock before that does not take the
// hold of another handle for dead.
func clockSetBack(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e), opens(t, e)
	_, err := a.Acquire(t.Context(), numbered("other", 1))
	require.NoError(t, err)
	g, err := b.Acquire(t.Context(), numbered("back", 2))
	require.NoError(t, err)
	require.True(t, g.Held)
	a.lags(-time.Minute)
	_, err = a.Acquire(t.Context(), numbered("back", 3))
	assert.ErrorIs(t, err, store.ErrHeld)
}

// clockSetForward: a hold that a handle takes before it hears of that has its whole
// lease for others too.
func clockSetForward(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e), opens(t, e)
	_, err := a.Acquire(t.Context(), numbered("warm", 1))
	require.NoError(t, err)
	a.lags(time.Minute)
	g, err := a.Acquire(t.Context(), numbered("forward", 2))
	require.NoError(t, err)
	require.True(t, g.Held)
	state, err := b.Inspect(t.Context(), "forward")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)
	assert.Equal(t, g.Token, state.Holders[0].Token)
	renewed := a.Renew(t.Context(), []store.Ref{{Name: "forward", Owner: "owner-2", ID: numbered("", 2).ID, TTL: 20 * time.Second}})
	assert.NoError(t, renewed[0])
}
