package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	saysUnknown = "Every other error means unknown, a timeout or a broken connection above all"
	saysPresent = "The store reads its present inside the atomic step of an operation, after every wait for a lock: with an older present a dead hold would look alive."
)

// sentinels are the errors that mean certainly not.
var sentinels = []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed}

// Cases in which the store's data cannot be reached for a while.
var stallCases = []testCase{
	{
		name: "ctx is obeyed",
		says: saysCtx, needs: stall,
		run: func(h *harness) {
			h.stalled(func(calls []namedCall, _ ...*claim) {
				for _, c := range calls {
					took, err := h.during(c)
					if took > h.ttl+h.prompt() {
						h.fail(c.name, fmt.Sprintf("%s after %v", describeError(err), took), fmt.Sprintf("an error soon after its ctx ended, at %v", h.ttl))
					}
				}
			})
		},
	},
	{
		name: "outcome is unknown",
		says: saysUnknown, needs: stall,
		run: func(h *harness) {
			h.stalled(func(calls []namedCall, claims ...*claim) {
				for _, c := range calls {
					_, err := h.during(c)
					if err == nil && c.name != "Incarnation" { // a store may know its life
						h.fail(c.name, "nil", "an error: the data cannot be reached")
					}
					for _, sentinel := range sentinels {
						if errors.Is(err, sentinel) {
							h.fail(c.name, describeError(err), "an error that matches no sentinel")
						}
					}
					h.wantNoSecret(err, claims...)
				}
			})
		},
	},
	{
		name: "renewal that waited beyond its lease",
		says: saysPresent, needs: stall,
		run: func(h *harness) {
			a := h.exclusive("A").lease(h.ttl)
			a.hold()
			lease := h.last
			err := h.waitThrough(lease, func(ctx context.Context) error {
				return h.renewWith(ctx, a.ref())[0]
			})
			if err == nil {
				h.fail("Renew("+describeRef(a.ref())+") that waits until the hold is dead", "nil", "ErrLost, or an unknown outcome")
			}
			h.exclusive("B").hold()
		},
	},
	{
		name: "request that waited beyond its lease",
		says: saysPresent, needs: stall,
		run: func(h *harness) {
			a, again := h.exclusive("A").lease(h.ttl), h.exclusive("A")
			token := a.hold().Token
			h.waitThrough(h.last, func(ctx context.Context) error {
				_, err := h.main.Acquire(ctx, again.req)
				return err
			})
			// Nobody else may have been granted, so only the token tells a re-entry
			// into the dead hold from a grant of its own.
			if got := again.hold().Token; got <= token {
				again.wrong("token more than %d, for the hold of the owner is dead", token)
			}
			h.wantHolders(again)
		},
	},
	{
		name: "bury afterwards",
		says: saysBury, needs: stall,
		run: func(h *harness) {
			a := h.exclusive("A")
			resume := h.stall()
			ctx, cancel := context.WithTimeout(h.ctx, h.ttl)
			h.main.Acquire(ctx, a.req)
			cancel()
			resume()
			if err := a.giveUp(true); err != nil && !isLost(err) {
				h.fail("Release(bury "+describeRef(a.ref())+")", describeError(err), "nil or ErrLost")
			}
			a.refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
}

// storeCall is a call of the store.
type storeCall func(ctx context.Context) error

// stall stalls the store until resume is called, or the case ends.
func (h *harness) stall() (resume func()) {
	h.notef("Suite.Stall")
	again := h.Stall(h.tb, h.main)
	var once sync.Once
	resume = func() {
		once.Do(func() {
			h.notef("resume")
			again()
		})
	}
	h.mu.Lock()
	h.resumes = append(h.resumes, resume)
	h.mu.Unlock()
	return resume
}

// stalled gives f the calls to make while the store is stalled, and the claims that they are about.
func (h *harness) stalled(f func(calls []namedCall, claims ...*claim)) {
	a, b, free := h.exclusive("A"), h.exclusive("B").waiting(), h.exclusive("A").on(h.name+"/free")
	a.hold()
	h.mu.Lock()
	for _, c := range []*claim{b, free} {
		h.refs[c.req.ID] = c.ref()
	}
	h.mu.Unlock()
	calls := h.abilityCalls(a, free)
	resume := h.stall()
	f(append([]namedCall{
		{"Inspect", func(ctx context.Context) error { _, err := h.main.Inspect(ctx, h.name); return err }},
		{"Renew", func(ctx context.Context) error { return h.renewWith(ctx, a.ref())[0] }},
		{"Acquire", func(ctx context.Context) error { _, err := h.main.Acquire(ctx, b.req); return err }},
		{"Acquire of a new name", func(ctx context.Context) error { _, err := h.main.Acquire(ctx, free.req); return err }},
		{"Release", func(ctx context.Context) error { return h.main.Release(ctx, a.ref()) }},
	}, calls...), a, b, free)
	resume()
}

// startCall makes a call on a goroutine of its own. It is answered even if the store panics.
func (h *harness) startCall(ctx context.Context, c storeCall) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("no answer")
		defer func() { done <- err }()
		defer h.recovered("a call of the store")
		err = c(ctx)
	}()
	return done
}

// during makes a call with a ctx that ends after a TTL and returns how long it took.
func (h *harness) during(c namedCall) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(h.ctx, h.ttl)
	defer cancel()
	end := h.traceCall(func() string { return c.name + " while the store is stalled" }, func() string { return describeError(err) })
	start := h.now()
	done := h.startCall(ctx, c.call)
	bound := time.NewTimer(h.ttl + 2*h.prompt())
	defer bound.Stop()
	select {
	case err = <-done:
	case <-bound.C:
		err = errors.New("no answer")
	}
	took = h.now() - start
	end()
	return took, err
}

// waitThrough makes a call while the store is stalled and resumes when what
// lasts a TTL from s has certainly ended. It returns the call's error.
func (h *harness) waitThrough(s callTime, c storeCall) (err error) {
	resume := h.stall()
	end := h.traceCall(func() string { return "a call while the store is stalled" }, func() string { return describeError(err) })
	done := h.startCall(h.ctx, c)
	h.after(s, h.ttl)
	resume()
	err = <-done
	end()
	return err
}
