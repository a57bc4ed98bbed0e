package dlock_test

import (
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
