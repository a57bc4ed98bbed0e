package dlock_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalled is a log handler that takes a while, as one that writes into a full pipe does.
type stalled struct{ slog.Handler }

func (h stalled) Handle(context.Context, slog.Record) error {
	time.Sleep(10 * time.Minute)
	return nil
}

// Many leases run out at the same moment, while the logger stands still. All holders are
// told in time.
func TestLoggerThatBlocksDelaysNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)})})
		var holds []*dlock.Hold
		for i := range 20 {
			holds = append(holds, mustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
		}
		s.goDown()
		time.Sleep(ttl)
		synctest.Wait()
		for _, h := range holds {
			assert.True(t, closed(h.Done()), "Done of %s", h.Name())
		}
		s.recover()
		time.Sleep(time.Hour)
	})
}

// Of the renewals that travel together some fail, and the logger stands still. The others
// count.
func TestLoggerThatBlocksDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{Logger: slog.New(stalled{slog.NewTextHandler(io.Discard, nil)})})
		bad, good := mustLock(t, t.Context(), c.Mutex("bad")), mustLock(t, t.Context(), c.Mutex("good"))
		s.failRenewals("bad")
		time.Sleep(2 * ttl)
		assert.Error(t, bad.Err())
		require.NoError(t, good.Err())
		require.NoError(t, good.Unlock())
		s.recover()
		bad.Unlock()
		time.Sleep(time.Hour)
	})
}
