package watchdog

import (
	"sync"
	"time"

	"github.com/RussellLuo/timingwheel"
)

// wheel is the part of a timing wheel that the watchdog uses. AfterFunc may call
// f at any moment and on any goroutine, and both methods may block for ever:
// the library has known faults. They cost batching only, because the timer of
// a shard checks each slot, and runningWheel.run alone calls these methods.
type wheel interface {
	AfterFunc(d time.Duration, f func())
	Stop()
}

type timingWheel struct{ *timingwheel.TimingWheel }

func newTimingWheel() wheel {
	tw := timingwheel.NewTimingWheel(tick, wheelSize)
	tw.Start()
	return timingWheel{tw}
}

func (t timingWheel) AfterFunc(d time.Duration, f func()) { t.TimingWheel.AfterFunc(d, f) }

const (
	// idleTime is how long a wheel is kept after it was given an entry. By
	// then its entries have fired, or their grace has passed.
	idleTime = 3 * span / 8
	// stale is how long after its last entry a wheel may be given another one.
	// A wheel takes the moment of its last firing for the current time, and an
	// entry that is more than span away from there needs an overflow wheel.
	// Only a process that was held up is so late; an idle wheel is stopped.
	stale = int64(span / 2)
	// maxQueued bounds the entries that wait for a wheel whose AfterFunc
	// blocks. A slot that finds no room is left to its shard's timer.
	maxQueued = 64
	// The pause after a discarded wheel doubles from firstPause to
	// longestPause as long as the next wheels are discarded soon, too.
	firstPause   = int64(time.Second)
	longestPause = int64(10 * time.Minute)
	// closePatience bounds how long close waits for a wheel to stop.
	closePatience = time.Second
)

// wheelSupply makes a wheel when one is needed, stops it when it is idle, and
// discards it when it is at fault. There is at most one wheel: the next one is
// made after the last has stopped. So a wheel that cannot be stopped is the last
// one, and the timers of the shards do its work from then on.
type wheelSupply struct {
	now      func() int64
	newWheel func() wheel

	mu        sync.Mutex
	current   *runningWheel // nil: none is in use
	running   bool          // a wheel has been made and has not stopped yet
	closed    bool
	pause     int64 // the last pause
	notBefore int64 // the end of the last pause; no wheel is made before
}

// runningWheel is one wheel, and the goroutine that alone calls its methods.
type runningWheel struct {
	entries chan entry
	quit    chan struct{} // closed when the wheel is discarded, or by close
	done    chan struct{} // closed when the wheel has stopped
	born    int64
}

// entry is a function to be called at a moment.
type entry struct {
	at int64
	f  func()
}

// submit has the wheel call f at the given moment, and returns the wheel. It
// returns nil if there is no wheel to rely on; f is never called then. It does
// not block.
func (k *wheelSupply) submit(at int64, f func()) *runningWheel {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		now := k.now()
		if k.closed || k.running || now < k.notBefore {
			return nil
		}
		k.running = true
		k.current = &runningWheel{
			entries: make(chan entry, maxQueued),
			quit:    make(chan struct{}),
			done:    make(chan struct{}),
			born:    now,
		}
		go k.run(k.current)
	}
	select {
	case k.current.entries <- entry{at, f}:
		return k.current
	default:
		return nil
	}
}

// run makes the wheel, gives it the entries, and stops it when it is idle or
// discarded.
func (k *wheelSupply) run(e *runningWheel) {
	w := k.newWheel()
	lastEntry := e.born
	idle := time.NewTimer(idleTime)
	defer func() {
		idle.Stop()
		w.Stop()
		k.mu.Lock()
		k.running = false
		k.mu.Unlock()
		close(e.done)
	}()
	for {
		select {
		case <-e.quit:
			return
		case <-idle.C:
			if k.retire(e) {
				return
			}
		case x := <-e.entries:
			idle.Reset(idleTime)
			now := k.now()
			if now-lastEntry > stale {
				k.discard(e)
				return
			}
			lastEntry = now
			w.AfterFunc(time.Duration(max(0, x.at-now)), x.f)
		}
	}
}

// retire takes e out of use, unless it has just been given an entry.
func (k *wheelSupply) retire(e *runningWheel) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(e.entries) > 0 {
		return false
	}
	if k.current == e {
		k.current = nil
	}
	return true
}

// discard takes e out of use because it is at fault. It does not block.
func (k *wheelSupply) discard(e *runningWheel) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != e {
		return
	}
	now := k.now()
	if k.pause == 0 || now-e.born > 10*k.pause {
		k.pause = firstPause
	} else {
		k.pause = min(2*k.pause, longestPause)
	}
	k.notBefore = now + k.pause
	k.current = nil
	close(e.quit)
}

// close stops the wheel in use and waits until it has stopped, but no longer than
// closePatience.
func (k *wheelSupply) close() {
	k.mu.Lock()
	k.closed = true
	e := k.current
	k.current = nil
	k.mu.Unlock()
	if e == nil {
		return
	}
	close(e.quit)
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-e.done:
	case <-patience.C:
	}
}
