package main

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// The phases of takeTurns.
const (
	warming = iota
	counting
	counted
	stopping
)

// takeTurns has goroutines lock and unlock, as fast as they can, one name or one
// of their own each. It counts in the middle of it, so that neither the first
// turns nor the last are counted, but all updates are checked.
func takeTurns(j job, say func(message), await func()) error {
	c, err := j.open()
	if err != nil {
		return err
	}
	p, err := openPage(j.Page)
	if err != nil {
		return err
	}
	for range j.Readers {
		l, err := c.locker(j.name(0), use{apart: true, reads: true})
		if err == nil {
			err = l.lock(true)
		}
		if err != nil {
			return err
		}
	}
	var phase atomic.Int32
	turners := make([]*turner, j.Goroutines)
	for i := range turners {
		l, err := c.locker(j.name(i), use{apart: j.Apart, reads: j.Reads > 0})
		if err != nil {
			return err
		}
		turners[i] = &turner{
			job: j, locker: l, page: p, phase: &phase,
			owner: uint64(j.Process)<<32 | uint64(i+1), every: 1,
		}
		if j.Library == "sync" {
			turners[i].every = 64
		}
	}
	ended := make(chan struct{}, len(turners))
	for _, t := range turners {
		go func() { t.run(); ended <- struct{}{} }()
	}
	time.Sleep(j.Warm)
	say(message{Ready: true})
	await()
	began, cpu := time.Now(), processorTime()
	phase.Store(counting)
	time.Sleep(j.Time)
	phase.Store(counted)
	r := result{Elapsed: time.Since(began), CPU: processorTime() - cpu}
	say(message{Over: true})
	await()
	phase.Store(stopping)
	time.Sleep(atLast) // for those who write just now
	r.Stuck = missing(ended, len(turners))
	for _, t := range turners {
		t.turn.Load() // what a stuck goroutine has done until then can be read now
		t.result.Turns = []int{t.result.Locks}
		t.result.Times = t.times.histogram()
		r.add(t.result)
	}
	say(message{Result: r})
	return nil
}

const (
	// atLast is how long an update takes at most that has begun.
	atLast = 50 * time.Millisecond
	// longest is how long nobody gets a lock that nobody holds before those who
	// wait for it are said to be stuck.
	longest = 3 * time.Second
	// enough is how long to watch them go.
	enough = 5 * time.Second
)

// missing are those of n who are stuck. Those who come through one after the
// other, too many to wait for all, are not.
func missing(ended <-chan struct{}, n int) int {
	over := time.After(enough)
	for ; n > 0; n-- {
		select {
		case <-ended:
		case <-over:
			return 0
		case <-time.After(longest):
			return n
		}
	}
	return 0
}

// turner is one goroutine of takeTurns.
type turner struct {
	job
	locker locker
	page   *page
	phase  *atomic.Int32
	owner  uint64
	every  int // how many locks there are for one that is timed
	turn   atomic.Int64
	times  recorder
	result result
}

// tolerated errors; with more of them a goroutine gives up.
const tolerated = 20

func (t *turner) run() {
	for n := 0; t.phase.Load() != stopping; n++ {
		t.turn.Store(int64(n))
		if t.Distinct && t.every > 1 && n%(16*t.every) == 0 {
			runtime.Gosched() // who never waits would keep hundreds of others waiting
		}
		shared := t.Reads > 0 && rand.Float64() < t.Reads
		timed := n%t.every == 0
		var began time.Time
		if timed {
			began = time.Now()
		}
		if err := t.locker.lock(shared); err != nil {
			if t.failed(err) {
				return
			}
			continue
		}
		phase := t.phase.Load()
		counts, changed := phase == counting, false
		if !t.Distinct && phase != stopping {
			if counts && timed {
				t.times.record(time.Since(began))
			}
			changed = t.visit(shared)
		}
		err := t.locker.unlock()
		if t.Distinct && counts && timed {
			t.times.record(time.Since(began))
		}
		if counts {
			t.result.Locks++
			if changed {
				t.result.Changes++
			}
		}
		if err != nil && t.failed(err) {
			return
		}
	}
}

// visit is what the lock guards. A reader changes no owner.
func (t *turner) visit(shared bool) (changed bool) {
	if shared {
		if n := t.page.first; !t.page.whole(n) {
			t.result.Torn++
		}
		return false
	}
	n, changed := t.page.begin(t.owner)
	t.page.end(n)
	t.result.Writes++
	return changed
}

// failed reports whether there were too many errors.
func (t *turner) failed(err error) bool {
	if t.result.Errors++; t.result.FirstError == "" {
		t.result.FirstError = err.Error()
	}
	return t.result.Errors > tolerated
}
