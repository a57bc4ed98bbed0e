package dlock_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

func TestStatsCountHoldsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		assert.Zero(t, coretest.Gauges(c))

		h := coretest.MustLock(t, t.Context(), c.Mutex("mine"))
		nested := coretest.MustLock(t, h.Context(t.Context()), c.Mutex("mine"))
		assert.Equal(t, dlock.Stats{Names: 1, Holds: 1}, coretest.Gauges(c))

		other := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("other"))
		waiting := make(chan *dlock.Hold)
		for range 2 {
			go func() { waiting <- coretest.MustLock(t, t.Context(), c.Mutex("other")) }()
		}
		synctest.Wait()
		stats := coretest.Gauges(c)
		assert.GreaterOrEqual(t, stats.Calls, 2)
		stats.Calls = 0
		assert.Equal(t, dlock.Stats{Names: 2, Holds: 1, Waiters: 2, Places: 1}, stats)

		require.NoError(t, other.Unlock())
		require.NoError(t, (<-waiting).Unlock())
		require.NoError(t, (<-waiting).Unlock())
		require.NoError(t, nested.Unlock())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		assert.Zero(t, coretest.Gauges(c))
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
		assert.Zero(t, coretest.Gauges(c))
	})
}

// Counters count what has happened, and stay.
func TestStatsCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, other := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		assert.Zero(t, c.Stats().Counters)

		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		assert.EqualValues(t, 1, c.Stats().StoreCalls)
		time.Sleep(15 * time.Second)
		assert.EqualValues(t, 1, c.Stats().Renewals)
		require.NoError(t, h.Unlock())
		assert.Equal(t, dlock.Counters{StoreCalls: 3, Renewals: 1}, c.Stats().Counters)

		// A goroutine of this process waits for 1 ms, and gets the lock without the store.
		h = coretest.MustLock(t, t.Context(), c.Mutex("m"))
		next := make(chan *dlock.Hold)
		go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, h.Unlock())
		require.NoError(t, (<-next).Unlock())
		require.NoError(t, (<-next).Unlock())
		synctest.Wait()
		counters := c.Stats().Counters
		assert.EqualValues(t, 2, counters.Waits)
		assert.Equal(t, 40*time.Millisecond, counters.WaitTime)
		assert.EqualValues(t, 1, counters.LocalHandovers)
		assert.EqualValues(t, 1, counters.PushedGrants)

		// Another process waits, and is told by the store.
		h = coretest.MustLock(t, t.Context(), c.Mutex("m"))
		go func() { next <- coretest.MustLock(t, t.Context(), other.Mutex("m")) }()
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, h.Unlock())
		require.NoError(t, (<-next).Unlock())
		counters = other.Stats().Counters
		assert.EqualValues(t, 1, counters.PushedGrants)
		assert.EqualValues(t, 1, counters.Waits)
		assert.Equal(t, time.Second, counters.WaitTime)
		assert.Zero(t, counters.StoreErrors)
	})
}

func TestStatsCountLossesByCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := coretest.NewSpy(m.Peer())
		c := coretest.Open(t, s, nil)
		var want dlock.Counters
		lose := func(count *int64, lose func(), opts ...dlock.LockOption) {
			t.Helper()
			h := coretest.MustLock(t, t.Context(), c.Mutex("m", opts...))
			lose()
			<-h.Done()
			require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
			s.Recover()
			time.Sleep(time.Minute)
			*count++
			got := c.Stats().Counters
			want.StoreCalls, want.StoreErrors, want.Renewals = got.StoreCalls, got.StoreErrors, got.Renewals
			assert.Equal(t, want, got)
		}
		lose(&want.LostMaxHold, func() {}, dlock.WithMaxHold(time.Second))
		lose(&want.LostFixed, func() {}, dlock.WithoutRenewal())
		lose(&want.LostGone, func() {
			_, err := c.Break(t.Context(), "m")
			require.ErrorIs(t, err, dlock.ErrUnsupported, "the spy has no Break")
			_, err = m.Break(t.Context(), "m")
			require.NoError(t, err)
		})
		assert.Zero(t, c.Stats().StoreErrors)
		lose(&want.LostDeadline, s.GoDown)
		assert.NotZero(t, c.Stats().StoreErrors)
		before := c.Stats().StoreErrors
		lose(&want.LostDeadline, func() { s.CutRenewals(func(context.Context) error { return store.ErrRefused }) })
		assert.Greater(t, c.Stats().StoreErrors, before, "renewals that the store refuses")

		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		_, err := m.Break(t.Context(), "m")
		require.NoError(t, err)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.EqualValues(t, 2, c.Stats().LostGone)
	})
}

// A wait is logged once when it gets long, with the holder; a short one is not.
func TestSlowWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var logs coretest.Logs
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, &dlock.Options{Label: "web-3:812"}).Mutex("m"))
		c := coretest.Open(t, s.Peer(), &dlock.Options{SlowWait: 2 * time.Second, Logger: slog.New(&logs)})
		_, err := c.Mutex("m").LockContext(within(t, 1900*time.Millisecond))
		require.Error(t, err)
		synctest.Wait()
		assert.Empty(t, logs.Of(slog.LevelWarn, ""))

		start := time.Now()
		next := make(chan *dlock.Hold)
		for range 3 {
			go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		}
		time.Sleep(2*time.Second - time.Since(start) - 1)
		synctest.Wait()
		assert.Empty(t, logs.Of(slog.LevelWarn, ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		warned := logs.Of(slog.LevelWarn, "waits for long")
		require.Len(t, warned, 3, "each of the three waits is logged once")
		for _, r := range warned {
			assert.Equal(t, "web-3:812", r.Attrs["held_by"].String())
			assert.Equal(t, "m", r.Attrs["name"].String())
		}
		require.NoError(t, h.Unlock())
		for range 3 {
			require.NoError(t, (<-next).Unlock())
		}
		assert.Len(t, logs.Of(slog.LevelWarn, ""), 3)
		_, err = dlock.New(s, &dlock.Options{SlowWait: -1})
		coretest.WantError(t, err, "new", "", dlock.ErrInvalidTTL)
	})
}
