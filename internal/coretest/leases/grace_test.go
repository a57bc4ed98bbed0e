package leases

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const grace = 5 * time.Second

// inGrace runs test with a lock of which the holder is warned 5 s before it ends.
func inGrace(t *testing.T, test func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs), opts ...dlock.LockOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, logs := coretest.NewSpy(memory.New()), new(coretest.Logs)
		c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)})
		test(t, c, s, c.Mutex("m", append(opts, dlock.WithGrace(grace))...), logs)
		s.Recover()
		time.Sleep(time.Minute)
	})
}

// wantWarned checks that the context has ended by a warning, and that the hold has not ended.
func wantWarned(t *testing.T, h *dlock.Hold, ctx context.Context) {
	t.Helper()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), dlock.ErrEnding)
	require.NotErrorIs(t, context.Cause(ctx), dlock.ErrLost)
	require.NoError(t, h.Err(), "the lock is still held")
	require.False(t, coretest.Closed(h.Done()))
}

// Renewals fail. The contexts end 5 s before the hold does, with a cause of their own.
func TestGraceWarnsBeforeALoss(t *testing.T) {
	inGrace(t, func(t *testing.T, _ *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
		h := coretest.MustLock(t, t.Context(), m)
		ctx := h.Context(t.Context())
		start := time.Now()
		s.GoDown()
		<-ctx.Done()
		assert.Equal(t, coretest.Validity(ttl)-grace, time.Since(start))
		wantWarned(t, h, ctx)
		wantWarned(t, h, h.Context(t.Context()))
		<-h.Done()
		assert.Equal(t, coretest.Validity(ttl), time.Since(start))
		require.ErrorIs(t, h.Err(), dlock.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), dlock.ErrEnding, "a cause does not change")
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.Len(t, logs.Of(slog.LevelWarn, "ends soon"), 1)
		assert.Empty(t, logs.Of(slog.LevelInfo, "renewed after its warning"))
	})
}

// A renewal succeeds after the warning: the hold goes on, and new contexts live.
func TestGraceReportsALateRenewal(t *testing.T) {
	inGrace(t, func(t *testing.T, _ *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
		h := coretest.MustLock(t, t.Context(), m)
		for round := range 2 {
			ctx := h.Context(t.Context())
			require.NoError(t, ctx.Err())
			before := h.Deadline()
			s.GoDown()
			<-ctx.Done()
			wantWarned(t, h, ctx)
			s.Recover()
			time.Sleep(grace - time.Second) // the last try before the end is in this time
			synctest.Wait()
			assert.Greater(t, h.Deadline(), before, "it was renewed")
			wantWarned(t, h, ctx)
			again := h.Context(t.Context())
			require.NoError(t, again.Err())
			assert.Len(t, logs.Of(slog.LevelWarn, "ends soon"), round+1)
			assert.Len(t, logs.Of(slog.LevelInfo, "renewed after its warning"), round+1)
			time.Sleep(10 * ttl)
			require.NoError(t, again.Err())
		}
		require.NoError(t, h.Unlock())
	})
}

// New contexts live from the renewal on, also while the timer has not seen it.
func TestGraceEndsWithTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m", dlock.WithTTL(time.Hour), dlock.WithGrace(20*time.Minute))
		h := coretest.MustLock(t, t.Context(), m)
		ctx, before := h.Context(t.Context()), h.Deadline()
		s.GoDown()
		<-ctx.Done()
		wantWarned(t, h, h.Context(t.Context()))
		s.Recover()
		for h.Deadline().Equal(before) {
			time.Sleep(time.Millisecond)
		}
		again := h.Context(t.Context())
		require.NoError(t, again.Err())
		s.GoDown()
		<-again.Done()
		wantWarned(t, h, again)
		s.Recover()
		time.Sleep(time.Minute)
		require.NoError(t, h.Unlock())
	})
}

// The context of Do ends before the lock does, so that fn can stop under the lock.
func TestGraceInDo(t *testing.T) {
	inGrace(t, func(t *testing.T, _ *dlock.Client, s *coretest.Spy, m *dlock.Mutex, _ *coretest.Logs) {
		err := m.Do(t.Context(), func(ctx context.Context) error {
			s.GoDown()
			<-ctx.Done()
			s.Recover()
			time.Sleep(grace - time.Millisecond) // to stop takes that long
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, dlock.ErrEnding)
		require.NotErrorIs(t, err, dlock.ErrLost)
	})
}

// Nested handles are each warned by the lock value that they were taken through.
func TestGraceOfNestedHandles(t *testing.T) {
	inGrace(t, func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, _ *coretest.Logs) {
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		nested := coretest.MustLock(t, h.Context(t.Context()), m)
		outside, inside := h.Context(t.Context()), nested.Context(t.Context())
		s.GoDown()
		<-inside.Done()
		wantWarned(t, nested, inside)
		require.NoError(t, outside.Err())
		<-outside.Done()
		require.ErrorIs(t, context.Cause(outside), dlock.ErrLost)
		require.ErrorIs(t, nested.Unlock(), dlock.ErrLost)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

// The outer lock has a TTL of 3 s and the nested one a grace of 5 s. The nested handle is warned one second before
// the end, a third of the TTL, and not at once.
func TestGraceIsLongerThanTheTTLOfTheHold(t *testing.T) {
	inGrace(t, func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
		const short = 3 * time.Second
		h := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithTTL(short)))
		nested := coretest.MustLock(t, h.Context(t.Context()), m)
		ctx := nested.Context(t.Context())
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
		require.Empty(t, logs.Of(slog.LevelWarn, "ends soon"))
		s.GoDown()
		<-ctx.Done()
		wantWarned(t, nested, ctx)
		assert.Equal(t, short/3, time.Until(nested.Deadline()).Round(time.Millisecond))
		s.Recover()
		require.NoError(t, nested.Unlock())
		require.NoError(t, h.Unlock())
	})
}

// The end of a lease without renewal, and MaxHold, are known before: they are warned of too.
func TestGraceBeforeAPlannedEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		opt dlock.LockOption
		end time.Duration
	}{
		"MaxHold":         {dlock.WithMaxHold(time.Hour), time.Hour},
		"without renewal": {dlock.WithoutRenewal(), coretest.Validity(ttl)},
	} {
		t.Run(name, func(t *testing.T) {
			inGrace(t, func(t *testing.T, _ *dlock.Client, _ *coretest.Spy, m *dlock.Mutex, _ *coretest.Logs) {
				start := time.Now()
				h := coretest.MustLock(t, t.Context(), m)
				ctx := h.Context(t.Context())
				<-ctx.Done()
				assert.Equal(t, tc.end-grace, time.Since(start))
				wantWarned(t, h, ctx)
				require.NoError(t, h.Unlock())
			}, tc.opt)
		})
	}
}

// Holds that are renewed are not warned of: one that was free, one that the store pushed and one
// that passed on here. The shortest lease among them lasts three times the grace.
func TestGraceWarnsOfNoHoldThatIsRenewed(t *testing.T) {
	inGrace(t, func(t *testing.T, c *dlock.Client, _ *coretest.Spy, _ *dlock.Mutex, logs *coretest.Logs) {
		m := c.Mutex("m", dlock.WithGrace(ttl/3))
		h := coretest.MustLock(t, t.Context(), m)
		next := make(chan *dlock.Hold)
		for range 3 {
			go func() { next <- coretest.MustLock(t, t.Context(), m) }()
			synctest.Wait()
		}
		for range 3 {
			ctx := h.Context(t.Context())
			time.Sleep(3 * ttl)
			require.NoError(t, ctx.Err())
			require.NoError(t, h.Unlock())
			h = <-next
		}
		require.NoError(t, h.Unlock())
		assert.Empty(t, logs.Of(slog.LevelWarn, ""))
	})
}

// An unlocked hold is not warned of, and leaves nothing behind.
func TestGraceEndsWithTheHold(t *testing.T) {
	inGrace(t, func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
		h := coretest.MustLock(t, t.Context(), m)
		require.NoError(t, h.Unlock())
		time.Sleep(2 * ttl)
		assert.Empty(t, logs.Of(slog.LevelWarn, ""))
		assert.Zero(t, coretest.Gauges(c))
	})
}

func TestGraceIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		for _, opts := range [][]dlock.LockOption{
			{dlock.WithGrace(0)}, {dlock.WithGrace(-1)}, {dlock.WithGrace(ttl/3 + 1)},
			{dlock.WithGrace(2 * time.Second), dlock.WithTTL(3 * time.Second)},
			{dlock.WithGrace(time.Second), dlock.WithMaxHold(time.Second)},
		} {
			_, err := c.Mutex("m", opts...).LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidTTL)
		}
	})
}

// A nested handle is unlocked at the moment of its warning, before or after that is told. Later renewals of
// the hold are nothing that the log tells of it.
func TestGraceEndsWithItsHandleAtTheMomentOfTheWarning(t *testing.T) {
	for range rounds {
		inGrace(t, func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			nested := coretest.MustLock(t, h.Context(t.Context()), m)
			s.GoDown()
			time.Sleep(coretest.Validity(ttl) - grace)
			require.NoError(t, nested.Unlock())
			s.Recover()
			time.Sleep(ttl)
			require.NoError(t, h.Unlock())
			synctest.Wait()
			assert.Empty(t, logs.Of(slog.LevelInfo, "renewed after its warning"))
		})
	}
}
