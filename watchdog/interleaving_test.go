package watchdog

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// armings counts what happens to one lease that is armed again and again.
type armings struct {
	Lease
	lost    atomic.Int64 // calls of Expired
	arming  atomic.Int64 // number of the current arming
	refused atomic.Int64 // the arming for which Renew has returned Lost
}

// Leases are disarmed at random moments around their renewals and deadlines.
// Each arming ends in exactly one way, and no deadline is moved by a renewal of
// an earlier arming.
func TestFault71ManyInterleavings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, rounds = 250, 100
		var lost, disarmed, renewed atomic.Int64
		w, err := New(Config{
			Renew: func(_ context.Context, batch []*Lease) []Outcome {
				renewed.Add(int64(len(batch)))
				return renewAtRandom(batch)
			},
			Expired: func(l *Lease) {
				a := l.Value.(*armings)
				if l.Cause() == ToldLost && a.refused.Load() != a.arming.Load() {
					t.Errorf("arming %d lost by the outcome of arming %d", a.arming.Load(), a.refused.Load())
				}
				a.lost.Add(1)
				lost.Add(1)
			},
		})
		require.NoError(t, err)
		var done sync.WaitGroup
		for range workers {
			done.Go(func() {
				a := &armings{}
				a.Value = a
				for round := range rounds {
					if armAndDisarm(t, w, a, round) {
						disarmed.Add(1)
					}
				}
			})
		}
		done.Wait()
		w.Close()
		require.EqualValues(t, workers*rounds, lost.Load()+disarmed.Load())
		require.Greater(t, lost.Load(), int64(1000))
		require.Greater(t, disarmed.Load(), int64(1000))
		require.Greater(t, renewed.Load(), int64(5000))
	})
}

// renewAtRandom answers after a while, each lease at random, and notes for which
// arming it answers Lost.
func renewAtRandom(batch []*Lease) []Outcome {
	sent := make([]int64, len(batch))
	for i, l := range batch {
		sent[i] = l.Value.(*armings).arming.Load()
	}
	time.Sleep(rand.N(30 * time.Millisecond))
	out := make([]Outcome, len(batch))
	for i, l := range batch {
		if out[i] = Outcome(rand.IntN(3)); out[i] == Lost {
			l.Value.(*armings).refused.Store(sent[i])
		}
	}
	return out
}

// armAndDisarm arms a and disarms it after a random time, and checks that either
// Disarm returns true or Expired is called once.
func armAndDisarm(t *testing.T, w *Watchdog, a *armings, round int) (disarmed bool) {
	validity := 20*time.Millisecond + rand.N(100*time.Millisecond)
	remaining := validity
	if round%4 == 0 {
		remaining = validity / 4 // renewed soon
	}
	before := a.lost.Load()
	a.arming.Add(1)
	w.Keep(&a.Lease, Terms{Deadline: time.Now().Add(remaining), Validity: validity})
	time.Sleep(rand.N(validity * 3 / 2))
	if d := a.Deadline(); !d.IsZero() && d.After(time.Now().Add(validity)) {
		t.Errorf("deadline %v ahead, validity %v", time.Until(d), validity)
	}
	disarmed = a.Disarm()
	if round%8 == 0 {
		// A call that is under way now ends before the next arming.
		time.Sleep(rand.N(40 * time.Millisecond))
	}
	if !disarmed && a.lost.Load() == before {
		// The loss is declared or about to be. The clock of a bubble waits
		// until it is reported.
		time.Sleep(time.Nanosecond)
	}
	if got := a.lost.Load() - before; (got == 1) == disarmed || got > 1 {
		t.Errorf("Disarm returned %v and Expired was called %d times", disarmed, got)
	}
	return disarmed
}

// signals is the Value of a lease of TestFault71InParallel.
type signals struct {
	called chan struct{} // a value for each call of Renew, if there is room
	lost   chan struct{} // a value for each call of Expired
}

// A hundred thousand armings on real threads. Here calls run at the same time,
// not only at the same moment of a bubble's clock.
func TestFault71InParallel(t *testing.T) {
	var lost, disarmed, kept, renewed atomic.Int64
	w, err := New(Config{
		Renew: func(_ context.Context, batch []*Lease) []Outcome {
			renewed.Add(int64(len(batch)))
			out := make([]Outcome, len(batch))
			for i, l := range batch {
				out[i] = Outcome(rand.IntN(3))
				select {
				case l.Value.(signals).called <- struct{}{}:
				default:
				}
			}
			return out
		},
		Expired: func(l *Lease) {
			lost.Add(1)
			l.Value.(signals).lost <- struct{}{}
		},
	})
	require.NoError(t, err)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			s := signals{make(chan struct{}, 1), make(chan struct{}, 1)}
			l := Lease{Value: s}
			for i := range 12_500 {
				remaining := time.Second
				switch {
				case i%30 == 0:
					remaining = 6 * time.Millisecond
				case i%3 == 0:
					remaining = rand.N(50 * time.Microsecond)
				}
				w.Keep(&l, Terms{Deadline: time.Now().Add(remaining), Validity: time.Second})
				kept.Add(1)
				if i%30 == 0 {
					select { // disarmed while its renewal is under way
					case <-s.called:
					case <-s.lost:
						s.lost <- struct{}{}
					}
				}
				if l.Disarm() {
					disarmed.Add(1)
				} else {
					<-s.lost
				}
			}
		})
	}
	done.Wait()
	w.Close()
	require.Equal(t, kept.Load(), disarmed.Load()+lost.Load())
	require.Positive(t, renewed.Load())
	require.Positive(t, lost.Load())
}
