package peers

import (
	"sync"
	"testing"
	"time"
)

// stall is how long this process, or a thread of it, is kept from running before
// it counts: half of the margin that dlock keeps of such a lease.
const stall = lease/200 + time.Millisecond

// pulse notices when the machine does not let this process run, or the server
// answer.
type pulse struct {
	mu    sync.Mutex
	stops []stop
}

type stop struct {
	from, to time.Time
	took     time.Duration
}

// newPulse watches this process, and serverPulse a server that ask asks.
func newPulse(t *testing.T) *pulse { return startPulse(t, waited, func() {}) }
func serverPulse(t *testing.T, ask func()) *pulse {
	return startPulse(t, func() map[string]time.Duration { return nil }, ask)
}

func startPulse(t *testing.T, waited func() map[string]time.Duration, ask func()) *pulse {
	const beat = 5 * time.Millisecond
	p := &pulse{}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		before := waited()
		for {
			from := time.Now()
			ask()
			select {
			case <-time.After(beat):
			case <-end:
				return
			}
			after, to := waited(), time.Now()
			took := to.Sub(from) - beat
			for thread, d := range after {
				if was, known := before[thread]; known {
					took = max(took, d-was)
				}
			}
			if before = after; took > stall {
				p.mu.Lock()
				p.stops = append(p.stops, stop{from.Add(-took), to, took})
				p.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { close(end); running.Wait() })
	return p
}

// stopped is for how long the process was stopped between these moments.
func (p *pulse) stopped(from, to time.Time) (sum time.Duration) {
	time.Sleep(4 * stall) // for what has just happened to be noticed
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stops {
		if s.from.Before(to) && s.to.After(from) {
			sum += s.took
		}
	}
	return sum
}
