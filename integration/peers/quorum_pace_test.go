package peers

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pace is what came of goroutines that lock and unlock for a while.
type pace struct {
	took    time.Duration
	pairs   []time.Duration // of each how long it took, sorted
	changes int             // of one name: turns of another than had the one before
	failed  int
	first   error
	both    int // two believed at once that they hold
}

func (p pace) rate() float64      { return float64(len(p.pairs)) / p.took.Seconds() }
func (p pace) handovers() float64 { return float64(p.changes) / p.took.Seconds() }

func (p pace) quantile(part float64) float64 {
	if len(p.pairs) == 0 {
		return 0
	}
	return p.pairs[min(int(part*float64(len(p.pairs))), len(p.pairs)-1)].Seconds()
}

// drive has so many goroutines of one client lock and unlock, all the same name or
// each its own, for a time or until each has done so once. Nobody has used the names
// before: what a library has left of one would be in the figures of another node's
// fault.
func drive(c client, goroutines int, one bool, length time.Duration) (p pace) {
	var mu sync.Mutex
	var running sync.WaitGroup
	var inside, latest atomic.Int32
	began, names := time.Now(), rand.Text()
	for g := range goroutines {
		name := names
		if !one {
			name = fmt.Sprint(names, "-", g)
		}
		running.Go(func() {
			var mine pace
			for done := false; !done; done = time.Since(began) > length {
				from := time.Now()
				h, err := c.Lock(context.Background(), name)
				if err == nil {
					if n := inside.Add(1); one && n > 1 {
						mine.both++
					}
					if latest.Swap(int32(g)) != int32(g) {
						mine.changes++
					}
					inside.Add(-1)
					err = h.Unlock()
				}
				if err == nil {
					mine.pairs = append(mine.pairs, time.Since(from))
					continue
				}
				if mine.failed++; mine.first == nil {
					mine.first = err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			p.pairs = append(p.pairs, mine.pairs...)
			p.failed, p.both, p.changes = p.failed+mine.failed, p.both+mine.both, p.changes+mine.changes
			if p.first == nil {
				p.first = mine.first
			}
		})
	}
	running.Wait()
	p.took = time.Since(began)
	slices.Sort(p.pairs)
	return p
}

// paces are the scenarios, in the order in which they are run.
var paces = []struct {
	name string
	run  func(t *testing.T, m *masters, l majority, node int, length time.Duration) pace
}{
	{one, func(t *testing.T, m *masters, l majority, _ int, length time.Duration) pace {
		return m.well(t, l, 1, false, length)
	}},
	{many, func(t *testing.T, m *masters, l majority, _ int, length time.Duration) pace {
		return m.well(t, l, 64, false, length)
	}},
	{line, func(t *testing.T, m *masters, l majority, _ int, length time.Duration) pace {
		return m.well(t, l, 8, true, length)
	}},
	{hung, func(t *testing.T, m *masters, l majority, node int, length time.Duration) pace {
		c := m.open(t, l, m.addrs())
		defer c.Close()
		m.servers[node].Pause()
		p := drive(c, 1, false, length)
		m.servers[node].Resume()
		m.servers[node].MustDo("PING")
		return p
	}},
	{dead, func(t *testing.T, m *masters, l majority, node int, length time.Duration) pace {
		c := m.open(t, l, m.addrs())
		defer c.Close()
		m.servers[node].Kill()
		p := drive(c, 1, false, length)
		m.servers[node].Restart()
		return p
	}},
}

const (
	one  = "one"
	many = "many"
	line = "line"
	hung = "hung"
	dead = "dead"
)

func (m *masters) well(t testing.TB, l majority, goroutines int, one bool, length time.Duration) pace {
	c := m.open(t, l, m.addrs())
	defer c.Close()
	return drive(c, goroutines, one, length)
}
