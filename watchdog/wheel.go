package watchdog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/RussellLuo/timingwheel"
)

// wheel is what is used of a timing wheel. AfterFunc may call f at any moment
// and on any goroutine, and either method may hang for ever: that is what the
// rest of this file is prepared for.
type wheel interface {
	AfterFunc(d time.Duration, f func())
	Stop()
}

type timingWheel struct{ tw *timingwheel.TimingWheel }

func newTimingWheel() wheel {
	tw := timingwheel.NewTimingWheel(tick, wheelSize)
	tw.Start()
	return timingWheel{tw}
}

func (t timingWheel) AfterFunc(d time.Duration, f func()) { t.tw.AfterFunc(d, f) }
func (t timingWheel) Stop()                               { t.tw.Stop() }

const (
	// A wheel is stopped when it has been idle for linger. It must not become
	// older than stale without having fired, because its idea of the current
	// time is that of its last firing, and a delay counted from there would
	// need an overflow wheel.
	linger = 3 * span / 8
	stale  = int64(span / 2)

	// maxStrikes is how many firings in a row may be wrong.
	maxStrikes = 3
	// A condemned wheel is replaced after a while that doubles from
	// firstRespite to lastRespite as long as the new ones fail too.
	firstRespite = int64(time.Second)
	lastRespite  = int64(10 * time.Minute)
	// maxStuck is how many condemned wheels may be unable to stop before no
	// other is made: each costs its memory and three goroutines for good.
	maxStuck = 4
	// closePatience bounds how long close waits for a wheel to stop.
	closePatience = time.Second
)

// wheelKeeper owns the wheel: at most one at a time, made when it is needed,
// stopped when it is idle, replaced when it is at fault.
type wheelKeeper struct {
	now       func() int64
	newWheel  func() wheel
	condemned func(*engine) // told after e was condemned, without locks

	mu        sync.Mutex
	current   *engine
	closed    bool
	respite   int64 // the last one given
	notBefore int64 // no new wheel until then
	stuck     int   // condemned and not yet stopped
}

// engine is one wheel and the goroutine that alone calls its methods. Callers
// of Keep hold locks, and AfterFunc of this library can block for ever (on the
// mutex of a bucket whose flush deadlocked, or on a poller that has left); so
// it is not called by them but fed from a queue. This also orders AfterFunc
// before Stop without a mutex that could be held for ever.
type engine struct {
	k       *wheelKeeper
	wake    chan struct{} // capacity 1
	quit    chan struct{}
	done    chan struct{}
	born    int64
	strikes atomic.Int32

	// guarded by k.mu
	condemned bool
	queue     []task
	pending   int   // submitted and not yet fired
	used      int64 // last submit
	fresh     int64 // the wheel's own time is at least this, if it is healthy
}

type task struct {
	at int64
	f  func(*engine)
}

// submit has f called at the given moment by the returned engine, or returns
// nil if there is no wheel to be trusted. It does not block.
func (k *wheelKeeper) submit(at int64, f func(*engine)) *engine {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	e := k.current
	if e != nil && e.pending == 0 && now-e.fresh > stale {
		k.current = nil
		close(e.quit)
		e = nil
	}
	if e == nil {
		if k.closed || now < k.notBefore || k.stuck >= maxStuck {
			return nil
		}
		e = &engine{
			k:     k,
			wake:  make(chan struct{}, 1),
			quit:  make(chan struct{}),
			done:  make(chan struct{}),
			born:  now,
			fresh: now,
		}
		k.current = e
		go e.run()
	}
	e.queue = append(e.queue, task{at, f})
	e.pending++
	e.used = now
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return e
}

// run feeds the wheel until it is idle or told to quit.
func (e *engine) run() {
	defer close(e.done)
	w := e.k.newWheel()
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		select {
		case <-e.quit:
			w.Stop()
			e.k.stopped(e)
			return
		case <-idle.C:
			if wait := e.k.retire(e); wait > 0 {
				idle.Reset(time.Duration(wait))
				continue
			}
			w.Stop()
			return
		case <-e.wake:
		}
		tasks, lags := e.k.take(e)
		if lags {
			e.k.condemn(e)
			continue
		}
		for _, t := range tasks {
			d := t.at - e.k.now()
			w.AfterFunc(time.Duration(max(0, d)), func() {
				e.k.fired(e, t.at, d > earliness)
				t.f(e)
			})
		}
	}
}

// take empties e's queue, and reports whether the wheel lags too far behind to
// be given anything.
func (k *wheelKeeper) take(e *engine) (tasks []task, lags bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tasks, e.queue = e.queue, nil
	return tasks, k.now()-e.fresh > stale
}

// fired is told of each firing. What was asked for within the tick fires
// without moving the wheel's own time, so it proves nothing.
func (k *wheelKeeper) fired(e *engine, at int64, proves bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.pending--
	if proves {
		e.fresh = max(e.fresh, min(at, k.now()))
	}
}

// retire lets go of e if it has been idle for long enough, or returns how long
// it has to wait.
func (k *wheelKeeper) retire(e *engine) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != e {
		return int64(linger) // e.quit is closed
	}
	now := k.now()
	if e.pending > 0 {
		return int64(linger)
	}
	if wait := max(e.used, e.fresh) + int64(linger) - now; wait > 0 {
		return wait
	}
	k.current = nil
	return 0
}

// strike counts a firing that was wrong and reports whether that condemns e.
func (e *engine) strike() bool { return e.strikes.Add(1) >= maxStrikes }

// punctual takes the strikes back.
func (e *engine) punctual() {
	if e.strikes.Load() != 0 {
		e.strikes.Store(0)
	}
}

// condemn parts with e for good. Its slots go to the standard timers and the
// next wheel, after a respite, gets only new ones.
func (k *wheelKeeper) condemn(e *engine) {
	k.mu.Lock()
	if k.current != e {
		k.mu.Unlock()
		return
	}
	now := k.now()
	if k.respite == 0 || now-e.born > 10*k.respite {
		k.respite = firstRespite
	} else {
		k.respite = min(2*k.respite, lastRespite)
	}
	k.notBefore = now + k.respite
	k.current = nil
	k.stuck++
	e.condemned = true
	close(e.quit)
	k.mu.Unlock()
	k.condemned(e)
}

// stopped is told that the wheel of an engine that was told to quit did stop.
func (k *wheelKeeper) stopped(e *engine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.condemned {
		k.stuck--
	}
}

// close stops the wheel and waits for that, within a bound: a wheel that is
// deadlocked, or was condemned, is left behind.
func (k *wheelKeeper) close() {
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
