package leases

import (
	"context"
	"fmt"
	"io"
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

// stalled is a log handler that takes ten minutes for a record, as one does that writes into a
// full pipe.
type stalled struct{ slog.Handler }

func (h stalled) Handle(context.Context, slog.Record) error {
	time.Sleep(10 * time.Minute)
	return nil
}

// Many leases end at the same moment while the logger blocks. Every loss is reported in time.
func TestLoggerThatBlocksDelaysNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)})})
		var holds []*dlock.Hold
		for i := range 20 {
			holds = append(holds, coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
		}
		s.GoDown()
		time.Sleep(ttl)
		synctest.Wait()
		for _, h := range holds {
			assert.True(t, coretest.Closed(h.Done()), "Done of %s", h.Name())
		}
		s.Recover()
		time.Sleep(time.Hour)
	})
}

// A release is not confirmed while the logger blocks. Unlock returns in its time, and the release goes on.
func TestLoggerThatBlocksDelaysNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := coretest.NewSpy(m)
		c := coretest.Open(t, s, &dlock.Options{
			StoreTimeout: time.Second, Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)}),
		})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.GoDown()
		began := time.Now()
		require.ErrorIs(t, h.Unlock(), dlock.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(began), time.Second)
		s.Recover()
		time.Sleep(time.Second)
		coretest.WantFree(t, m, "m")
		time.Sleep(time.Hour)
	})
}

// Unlock ends a lost hold while a later one is held, and logs that to a logger that blocks. The lost hold is ended
// before that.
func TestLoggerThatBlocksDelaysNoEndOfALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)})})
		m := c.Mutex("m")
		m.Lock()
		s.GoDown()
		time.Sleep(ttl)
		s.Recover()
		m.Lock() // by another goroutine
		go m.Unlock()
		time.Sleep(time.Second) // the release of the lost hold pauses after the outage
		m.Unlock()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
		time.Sleep(time.Hour)
	})
}

// One hold of a batch cannot be renewed while the logger blocks. The others are renewed.
func TestLoggerThatBlocksDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)})})
		bad, good := coretest.MustLock(t, t.Context(), c.Mutex("bad")), coretest.MustLock(t, t.Context(), c.Mutex("good"))
		s.FailRenewals("bad")
		time.Sleep(2 * ttl)
		assert.Error(t, bad.Err())
		require.NoError(t, good.Err())
		require.NoError(t, good.Unlock())
		s.Recover()
		bad.Unlock()
		time.Sleep(time.Hour)
	})
}
