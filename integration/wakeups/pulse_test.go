package wakeups

import (
	"sync"
	"testing"
	"time"
)

// pulse asks a server for next to nothing all the time, and so knows when it, or
// this process, did not get to run. Nobody can be told of anything then.
type pulse struct {
	mu    sync.Mutex
	stops []stop
}

type stop struct{ from, to time.Time }

func (s stop) took() time.Duration { return s.to.Sub(s.from) }

// stopped is how long a beat takes that says something is stopped.
const stopped = 250 * time.Millisecond

func newPulse(t *testing.T, beat func() error) *pulse {
	p := &pulse{}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from := time.Now()
			if err := beat(); err != nil {
				t.Error("the server does not answer:", err)
				return
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-end:
				return
			}
			if s := (stop{from, time.Now()}); s.took() > stopped {
				p.mu.Lock()
				p.stops = append(p.stops, s)
				p.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { close(end); running.Wait() })
	return p
}

// ran is how much of the time between two moments nothing was stopped.
func (p *pulse) ran(from, to time.Time) time.Duration {
	time.Sleep(2 * stopped) // for a stop that has just ended to be noticed
	p.mu.Lock()
	defer p.mu.Unlock()
	ran := to.Sub(from)
	for _, s := range p.stops {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		ran -= max(end.Sub(begin), 0)
	}
	return ran
}

// worst is the longest stop.
func (p *pulse) worst() (d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stops {
		d = max(d, s.took())
	}
	return d
}
