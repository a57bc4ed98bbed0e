package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatsCountHoldsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		assert.Zero(t, c.Stats())

		h := coretest.MustLock(t, t.Context(), c.Mutex("mine"))
		nested := coretest.MustLock(t, h.Context(t.Context()), c.Mutex("mine"))
		assert.Equal(t, dlock.Stats{Names: 1, Holds: 1}, c.Stats())

		other := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("other"))
		waiting := make(chan *dlock.Hold)
		for range 2 {
			go func() { waiting <- coretest.MustLock(t, t.Context(), c.Mutex("other")) }()
		}
		synctest.Wait()
		stats := c.Stats()
		assert.GreaterOrEqual(t, stats.Calls, 2)
		stats.Calls = 0
		assert.Equal(t, dlock.Stats{Names: 2, Holds: 1, Waiters: 2, Places: 1}, stats)

		require.NoError(t, other.Unlock())
		require.NoError(t, (<-waiting).Unlock())
		require.NoError(t, (<-waiting).Unlock())
		require.NoError(t, nested.Unlock())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		assert.Zero(t, c.Stats())
	})
}

func TestStatsCountReleasesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.GoDown()
		require.Error(t, h.Unlock())
		assert.Equal(t, 1, c.Stats().Releases)
		assert.Zero(t, c.Stats().Holds, "the hold has ended, also if the store does not know")
		s.Recover()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, c.Stats())
	})
}
