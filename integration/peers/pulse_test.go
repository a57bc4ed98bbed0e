package peers

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
)

const (
	// stall is how long this process, or a thread of it, is kept from running before
	// it counts: half of the margin that dlock keeps of such a lease.
	stall = lease/200 + time.Millisecond
	beat  = 5 * time.Millisecond
)

// newPulse watches this process and its threads.
func newPulse(t *testing.T) *locktest.Pulse {
	before := waited()
	return locktest.StartPulse(t, beat, stall, func() (most time.Duration, _ error) {
		after := waited()
		for thread, d := range after {
			if was, known := before[thread]; known {
				most = max(most, d-was)
			}
		}
		before = after
		return most, nil
	})
}

// serverPulse watches a server that ask asks.
func serverPulse(t *testing.T, ask func()) *locktest.Pulse {
	return locktest.StartPulse(t, beat, stall, func() (time.Duration, error) { ask(); return 0, nil })
}
