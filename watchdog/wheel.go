package watchdog

import (
	"sync"
	"time"

	"github.com/RussellLuo/timingwheel"
)

// wheel is the part of a timing wheel that the watchdog uses. AfterFunc may call f at
// any moment and on any goroutine, and both methods may block for ever: the library
// counts on the wall clock and has known faults. Entries are never cancelled, because
// Timer.Stop of the library races with its dispatcher.
type wheel interface {
	AfterFunc(d time.Duration, f func())
	Stop()
}

// timingWheel is the wheel of the library.
type timingWheel struct{ *timingwheel.TimingWheel }

// newTimingWheel starts a wheel, which has two goroutines.
func newTimingWheel() wheel {
	tw := timingwheel.NewTimingWheel(tick, wheelSize)
	tw.Start()
	return timingWheel{tw}
}

// AfterFunc has f called once, on a goroutine of its own, when d has passed on the wall clock.
func (t timingWheel) AfterFunc(d time.Duration, f func()) { t.TimingWheel.AfterFunc(d, f) }

const (
	tick      = 5 * time.Millisecond
	wheelSize = 2048
	// span is how far ahead the wheel can hold an entry without an overflow wheel. The
	// library can deadlock when buckets of an overflow wheel are used again.
	span = tick * wheelSize
	// longestEntry is the longest wait that the wheel is given. A wheel takes its last firing for the
	// current time. So the sum of idleTime and longestEntry is less than span.
	longestEntry = int64(span / 5)
	// shortestEntry is the shortest wait that the wheel is given. It would answer shorter
	// ones at once, and a failing renewal would be repeated without a pause.
	shortestEntry = int64(4 * tick)
	// earliness is how much too early a good wheel may fire: it rounds down to its tick
	// once and to milliseconds twice.
	earliness = int64(2 * tick)
	// lateness is how much too late a good wheel may fire. A process that stood still for
	// longer has its wheel replaced, which does no harm.
	lateness = int64(time.Second)
	// idleTime is how long a wheel is kept after it was given an entry. By then its
	// entries have fired, or are too late.
	idleTime = 3 * span / 8
	// pause is how long there is no wheel after one that was at fault. The entries of
	// that one are too late by then, so none is taken for a fault of the next one.
	pause = int64(10 * time.Second)
	// maxQueued bounds the entries that wait for a wheel whose AfterFunc blocks.
	maxQueued = 64
)

// wheelSupply makes a wheel when one is needed, and stops it when it is idle or at
// fault. There is at most one wheel: the next one is made after the last has stopped.
// So a wheel that cannot be stopped is the last one, and the timers of the shards do
// its work from then on.
type wheelSupply struct {
	now      func() int64
	newWheel func() wheel

	mu        sync.Mutex
	entries   chan func(wheel) // to the goroutine of the wheel; nil: no wheel is in use
	running   bool             // that goroutine, or the one before, has not ended
	notBefore int64            // no wheel is made before
}

// submit has a wheel call f at the given moment. It returns false if there is no wheel
// to rely on; f is never called then. It does not block.
func (k *wheelSupply) submit(at int64, f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries == nil {
		if k.running || k.now() < k.notBefore {
			return false
		}
		k.entries, k.running = make(chan func(wheel), maxQueued), true
		go k.run(k.entries)
	}
	select {
	case k.entries <- func(w wheel) { w.AfterFunc(time.Duration(max(0, at-k.now())), f) }:
		return true
	default:
		return false
	}
}

// run makes a wheel and gives it the entries until there are no more. No other
// goroutine calls the wheel, because its methods may block.
func (k *wheelSupply) run(entries <-chan func(wheel)) {
	w := k.newWheel()
	idle := time.AfterFunc(idleTime, func() { k.stop(0) })
	for enter := range entries {
		idle.Reset(idleTime)
		enter(w)
	}
	idle.Stop()
	w.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = false
}

// stop stops the wheel in use, and has no other one made before the given moment. A wheel that is
// stopped because it is idle, with 0, goes on if it has just been given an entry.
func (k *wheelSupply) stop(until int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries != nil && (until != 0 || len(k.entries) == 0) {
		close(k.entries)
		k.entries, k.notBefore = nil, until
	}
}
