// Package wakeups hands locks over many times, while the connections that tell
// waiters of it are killed, and looks for one that was not told and only came
// round to asking by itself. It also kills holders.
//
// DLOCK_PROVE=1 makes many more hand-overs, for about ten minutes: give it
// -timeout=30m.
package wakeups

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m, stores.Open, "16") }

// newPulse asks a server for next to nothing all the time. A quarter of a second without an answer is a stop.
func newPulse(t *testing.T, beat func() error) *locktest.Pulse {
	return locktest.WatchServer(t, 250*time.Millisecond, beat)
}
