package main

import (
	"sync/atomic"
	"time"
)

// settled is how long the next one has waited when the lock is given up: it is
// in the queue then, or asleep until it tries again.
const settled = 2 * time.Millisecond

// handOver has a lock go to and fro between two processes, each of which gives
// it up when the other waits for it, and wants it again when the other has it:
// else it would take it again and again while the other is asleep. What counts is the time from before Unlock
// in the one to after Lock in the other.
func handOver(j job, say func(message), await func()) error {
	c, err := j.open()
	if err != nil {
		return err
	}
	p, err := openPage(j.Page)
	if err != nil {
		return err
	}
	l, err := c.locker(j.name(0), use{})
	if err != nil {
		return err
	}
	h := &hander{page: p, locker: l, own: &p.waits[j.Process], other: &p.waits[1-j.Process], owner: uint64(j.Process) + 1}
	ended := make(chan struct{}, 1)
	go func() { h.run(); ended <- struct{}{} }()
	time.Sleep(j.Warm)
	say(message{Ready: true})
	await()
	began := time.Now()
	h.phase.Store(counting)
	time.Sleep(j.Time)
	h.phase.Store(counted)
	elapsed := time.Since(began)
	say(message{Over: true})
	await()
	h.phase.Store(stopping)
	time.Sleep(atLast)
	stuck := missing(ended, 1)
	h.turn.Load() // what it has done until it got stuck can be read now
	r := h.result
	r.Times, r.Elapsed, r.Stuck = h.times.histogram(), elapsed, stuck
	say(message{Result: r})
	return nil
}

type hander struct {
	page       *page
	locker     locker
	own, other *atomic.Int64
	owner      uint64
	phase      atomic.Int32
	turn       atomic.Int64
	times      recorder
	result     result
}

func (h *hander) run() {
	for n := int64(0); h.phase.Load() != stopping; n++ {
		h.turn.Store(n)
		h.own.Store(now())
		if err := h.locker.lock(false); err != nil {
			h.failed(err)
			return
		}
		at := now()
		h.own.Store(0)
		if h.phase.Load() != stopping {
			h.hold(at)
		}
		if err := h.locker.unlock(); err != nil {
			h.failed(err)
			return
		}
		h.until(func() bool { return h.page.holder.Load() != h.owner })
	}
}

// hold is what the lock guards, from the moment when it was taken.
func (h *hander) hold(at int64) {
	n, changed := h.page.begin(h.owner)
	h.page.holder.Store(h.owner)
	if changed && h.page.released > 0 && h.phase.Load() == counting {
		h.times.record(time.Duration(at - h.page.released))
		h.result.Locks++
		h.result.Changes++
	}
	h.until(func() bool {
		since := h.other.Load()
		return since > 0 && now()-since > int64(settled)
	})
	h.page.end(n)
	h.result.Writes++
	h.page.released = now()
}

// until waits for something that the other process does, or for the end.
func (h *hander) until(done func() bool) {
	for !done() && h.phase.Load() != stopping {
		time.Sleep(settled / 10)
	}
}

func (h *hander) failed(err error) {
	h.result.Errors++
	h.result.FirstError = err.Error()
}
