package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
)

// outcome is how a case ended. It is a value, not calls on a testing.T, so
// that the suite can be run on stores that are meant to fail it.
type outcome struct {
	skipped string // why, or empty
	report  string // what is wrong, or empty
	hung    bool   // a call did not return
}

// realBound is how long a bubble may take on the real clock. A goroutine that
// waits for a mutex is not durably blocked, so fake time stands still then and
// no deadline inside the bubble would ever pass.
const realBound = 20 * time.Second

// runAll runs cases as subtests of t, so many at the same time, and returns when
// all have ended. Refused: t.Parallel, for it would let no more of them run than
// there are processors, and the caller go on before they end.
func (p *plan) runAll(t *testing.T, cases []testCase, atOnce int) {
	queue := make(chan testCase, len(cases))
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	var runners sync.WaitGroup
	for range atOnce {
		runners.Go(func() {
			for c := range queue {
				t.Run(c.name, func(t *testing.T) { p.runAsTest(t, c) })
			}
		})
	}
	runners.Wait()
}

// runAsTest runs a case and tells t what came of it. Skipping is decided out
// here: inside a bubble t.Skip would be reported as a pass.
func (p *plan) runAsTest(t *testing.T, c testCase) {
	why := p.skips(c)
	if why == "" && p.verdicts.tooManyHang() {
		why = fmt.Sprintf("%d cases did not end, so the rest is not run", hangs)
	}
	if why != "" {
		p.verdicts.skip(c, why)
		t.Skip(why)
	}
	got := p.run(t, c)
	p.verdicts.add(c, got)
	if got.skipped != "" {
		t.Skip(got.skipped)
	}
	if got.report != "" {
		t.Error(got.report)
	}
}

// retryFor is how long a case is repeated. A store that hangs, or whose events are
// missing, makes a case look as if the machine was slow.
const retryFor = 30 * time.Second

// run runs a case, repeating it with longer leases when the machine was too
// slow for what the case saw to mean anything. A case that did not end is not repeated.
func (p *plan) run(t *testing.T, c testCase) outcome {
	began := time.Now()
	for ttl, tries := p.TTL, 5; ; ttl, tries = 2*ttl, tries-1 {
		h := newHarness(p, c, ttl)
		if p.Bubble {
			p.inBubble(t, h)
		} else {
			h.drive(t)
		}
		got, spoilt := h.outcome()
		if !spoilt || got.hung || tries == 1 || time.Since(began) > retryFor {
			return got
		}
	}
}

// inBubble drives h in a bubble from a goroutine of its own, which can be
// left behind, and turns the panic of a bubble that is blocked for ever into a
// failure with a trace.
func (p *plan) inBubble(t *testing.T, h *harness) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		synctest.Test(t, func(t *testing.T) { h.drive(t) })
	}()
	bound := time.NewTimer(realBound)
	defer bound.Stop()
	select {
	case v := <-done:
		if v != nil {
			h.report("case", fmt.Sprintf("goroutines that never end: %v", v), "every goroutine ends when the store is closed")
		}
	case <-bound.C:
		h.setHung()
		h.report("case", fmt.Sprintf("no end after %v of real time", realBound), "every call returns")
	}
}

// drive opens the handles, runs the case and cleans up.
func (h *harness) drive(t testing.TB) {
	h.begin()
	defer func() {
		h.mu.Lock()
		h.skippedBy = !h.opened && t.Skipped()
		h.mu.Unlock()
	}()
	h.open(t)
	h.phase("case", h.deadline, func() { h.testCase.run(h) })
	h.cancel()
	h.phase("clean-up", h.deadline, h.cleanUp)
}

// phase runs f on a goroutine that is left behind when the bound has passed.
func (h *harness) phase(name string, bound time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer h.recovered(name)
		f()
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		h.setHung()
		h.report(name, fmt.Sprintf("not finished after %v; see the calls without a result in the trace", bound), "every call returns, at the latest soon after its ctx ends")
		h.cancel()
	}
}

// recovered, deferred, makes a panic of the store a failure of the case.
func (h *harness) recovered(phase string) {
	if v := recover(); v != nil {
		h.report(phase, fmt.Sprintf("panic: %v\n%s", v, debug.Stack()), "no panic")
		h.cancel()
	}
}

// cleanUp gives back all that the case took, whatever came of it.
func (h *harness) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), h.deadline)
	defer cancel()
	for _, resume := range h.resumes {
		resume()
	}
	for _, ref := range h.taken() {
		if err := h.main.Release(ctx, ref); err != nil && !isLost(err) && !errors.Is(err, store.ErrForeignKey) {
			h.report("clean-up: Release of "+describeRef(ref), describeError(err), "nil, ErrLost or, if one was planted, ErrForeignKey")
		}
	}
	for _, stop := range h.stops {
		stop()
	}
	for _, s := range h.handles {
		if err := s.Close(); err != nil {
			h.report("clean-up: Close", describeError(err), "nil")
		}
	}
}
