package cancels

import (
	"sync"
	"testing"
	"time"
)

// heart beats every millisecond, and so knows when this process did not get to
// run. Nobody can return from anything then.
type heart struct {
	mu    sync.Mutex
	stops []stop
}

type stop struct{ from, to time.Time }

const beat = time.Millisecond

func newHeart(t *testing.T) *heart {
	h := &heart{}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for last := time.Now(); ; {
			select {
			case <-time.After(beat):
			case <-end:
				return
			}
			at := time.Now()
			if at.Sub(last) > 3*beat {
				h.mu.Lock()
				h.stops = append(h.stops, stop{last, at})
				h.mu.Unlock()
			}
			last = at
		}
	})
	t.Cleanup(func() { close(end); running.Wait() })
	return h
}

// stood is for how long of the time between two moments nothing ran.
func (h *heart) stood(from, to time.Time) (d time.Duration) {
	time.Sleep(10 * beat) // for a stop that has just ended to be noticed
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.stops {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		d += max(end.Sub(begin), 0)
	}
	return d
}
