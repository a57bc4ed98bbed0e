package locktest

import (
	"os"
	"sync"
	"testing"
	"time"
)

// Prove returns how much a test does: few, or many with DLOCK_PROVE=1.
func Prove[T any](few, many T) T {
	if os.Getenv("DLOCK_PROVE") != "" {
		return many
	}
	return few
}

// Pulse beats all the time, and so knows when this process did not run, or a server did not answer. What is late then
// says nothing of the library.
type Pulse struct {
	least time.Duration
	mu    sync.Mutex
	stops []stop
}

type stop struct {
	from, to time.Time
	took     time.Duration
}

const beat = 5 * time.Millisecond

// WatchServer beats until the test ends. A beat that takes longer than it should by least is a stop. An error of ask
// fails the test.
func WatchServer(t testing.TB, least time.Duration, ask func() error) *Pulse {
	return startPulse(t, beat, least, ask, func() map[string]time.Duration { return nil })
}

// WatchProcess is for this process. It is a stop too, where the system says so, if a thread of it waits for a
// processor for longer than least.
func WatchProcess(t testing.TB, least time.Duration) *Pulse {
	return startPulse(t, beat, least, func() error { return nil }, threads)
}

func startPulse(t testing.TB, beat, least time.Duration, ask func() error, threads func() map[string]time.Duration) *Pulse {
	p := &Pulse{least: beat + least}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		before := threads()
		for {
			from := time.Now()
			if err := ask(); err != nil {
				t.Error("the server does not answer:", err)
				return
			}
			select {
			case <-time.After(beat):
			case <-end:
				return
			}
			after, to := threads(), time.Now()
			var waited time.Duration
			for thread, d := range after {
				if was, known := before[thread]; known {
					waited = max(waited, d-was)
				}
			}
			before = after
			if took := max(to.Sub(from)-beat, waited); took > least {
				p.mu.Lock()
				p.stops = append(p.stops, stop{from.Add(-waited), to, took})
				p.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { close(end); running.Wait() })
	return p
}

// Stopped returns for how long something was stopped between two moments.
func (p *Pulse) Stopped(from, to time.Time) (sum time.Duration) {
	time.Sleep(2 * p.least) // for a stop that has just ended to be noticed
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stops { // in the order of their ends; what two have in common counts once
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if begin.Before(end) {
			sum += min(s.took, end.Sub(begin))
			from = end
		}
	}
	return sum
}

// Worst returns the longest stop.
func (p *Pulse) Worst() (d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stops {
		d = max(d, s.took)
	}
	return d
}
