package dlock_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The log of a slow wait says how long the call waits and how long the holder has the lock, and
// whether the holder is of this client.
func TestSlowWaitTellsTheHolder(t *testing.T) {
	for name, own := range map[string]bool{"another client": false, "this client": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				var logs coretest.Logs
				c := coretest.Open(t, s, &dlock.Options{SlowWait: 2 * time.Second, Logger: slog.New(&logs), Label: "web-3:812"})
				holder := c
				if !own {
					holder = coretest.Open(t, s.Peer(), &dlock.Options{Label: "web-3:812"})
				}
				h := coretest.MustLock(t, t.Context(), holder.Mutex("m"))
				time.Sleep(time.Hour)
				got := make(chan *dlock.Hold)
				go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
				time.Sleep(time.Minute)
				warned := logs.Of(slog.LevelWarn, "waits for long")
				if assert.Len(t, warned, 1) {
					a := warned[0].Attrs
					assert.Equal(t, "web-3:812", a["held_by"].String())
					assert.Equal(t, own, a["this_client"].Bool())
					assert.Equal(t, 2*time.Second, a["waited"].Duration())
					assert.Equal(t, time.Hour+2*time.Second, a["held_for"].Duration())
				}
				require.NoError(t, h.Unlock())
				require.NoError(t, (<-got).Unlock())
			})
		})
	}
}

// inSlowWait runs test with a lock that another process holds, and with a client that logs waits of two seconds.
func inSlowWait(t *testing.T, test func(t *testing.T, h *dlock.Hold, c *dlock.Client, s *coretest.Spy, warned func() []coretest.Record)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locks, logs := memory.New(), new(coretest.Logs)
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, locks, nil).Mutex("m"))
		s := coretest.NewSpy(locks.Peer())
		c := coretest.Open(t, s, &dlock.Options{SlowWait: 2 * time.Second, Logger: slog.New(logs)})
		test(t, h, c, s, func() []coretest.Record {
			synctest.Wait()
			return logs.Of(slog.LevelWarn, "waits for long")
		})
	})
}

// A call that was warned of comes to the front of its process and waits on. That is not logged again.
func TestSlowWaitIsLoggedOnceForACall(t *testing.T) {
	inSlowWait(t, func(t *testing.T, h *dlock.Hold, c *dlock.Client, _ *coretest.Spy, warned func() []coretest.Record) {
		got := make(chan *dlock.Hold)
		for range 2 {
			go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		require.Len(t, warned(), 2)
		require.NoError(t, h.Unlock())
		first := <-got
		time.Sleep(time.Minute)
		assert.Len(t, warned(), 2)
		require.NoError(t, first.Unlock())
		require.NoError(t, (<-got).Unlock())
	})
}

// The store takes a second to queue the request. The wait is counted from the beginning of the call.
func TestSlowWaitCountsFromTheCall(t *testing.T) {
	inSlowWait(t, func(t *testing.T, h *dlock.Hold, c *dlock.Client, s *coretest.Spy, warned func() []coretest.Record) {
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			time.Sleep(time.Second)
			return s.Store.Acquire(ctx, req)
		})
		got := make(chan *dlock.Hold)
		go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		time.Sleep(2*time.Second - 1)
		require.Empty(t, warned())
		time.Sleep(time.Nanosecond)
		require.Len(t, warned(), 1)
		assert.Equal(t, 2*time.Second, warned()[0].Attrs["waited"].Duration())
		require.NoError(t, h.Unlock())
		require.NoError(t, (<-got).Unlock())
	})
}

// The log of a slow wait has the trouble of the store, beside the holder that it named before.
func TestSlowWaitTellsTheTroubleOfTheStore(t *testing.T) {
	inSlowWait(t, func(t *testing.T, h *dlock.Hold, c *dlock.Client, s *coretest.Spy, warned func() []coretest.Record) {
		got := make(chan *dlock.Hold)
		go func() { got <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		synctest.Wait()
		holder := coretest.Inspect(t, s, "m").Holders[0].Label
		s.GoDown()
		time.Sleep(2 * time.Second)
		require.Len(t, warned(), 1)
		assert.Equal(t, coretest.ErrDown.Error(), warned()[0].Attrs["error"].String())
		assert.Equal(t, holder, warned()[0].Attrs["held_by"].String())
		s.Recover()
		require.NoError(t, h.Unlock())
		require.NoError(t, (<-got).Unlock())
	})
}
