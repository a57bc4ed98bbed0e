package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	saysCtx     = "A method returns soon after its ctx ends. What it asked for may then still happen; the error says unknown."
	saysForeign = "ErrForeignKey: what the store finds where the lock should be was not written by dlock, or not in a format this version knows."
)

var inputCases = []testCase{
	{
		name: "cancelled context",
		says: saysCtx,
		run: func(h *harness) {
			ctx, cancel := context.WithCancel(h.ctx)
			cancel()
			h.withContext(ctx)
		},
	},
	{
		name: "context past its deadline",
		says: saysCtx,
		run: func(h *harness) {
			ctx, cancel := context.WithDeadline(h.ctx, time.Now().Add(-time.Second))
			defer cancel()
			h.withContext(ctx)
		},
	},
	{
		name: "cancelled request can be cleaned up",
		says: "Any other error means unknown: the request may have been applied, and repeating it with the same ID is safe.",
		run: func(h *harness) {
			ctx, cancel := context.WithCancel(h.ctx)
			cancel()
			a := h.exclusive("A")
			h.main.Acquire(ctx, a.req)
			if err := a.giveUp(true); err != nil && !isLost(err) {
				h.fail("Release(bury "+describeRef(a.ref())+")", describeError(err), "nil or ErrLost")
			}
			a.refused(store.ErrLost)
			h.exclusive("B").hold()
		},
	},
	{
		name: "foreign key",
		says: saysForeign, needs: plant,
		run: func(h *harness) {
			h.exclusive("A").refused(store.ErrForeignKey)
			h.shared("A").refused(store.ErrForeignKey)
		},
	},
	{
		name: "nobody waits for a foreign key",
		says: "Waiting does not help; an operator has to look.", needs: plant,
		run: func(h *harness) {
			h.exclusive("A").waiting().refused(store.ErrForeignKey)
			h.shared("A").waiting().refused(store.ErrForeignKey)
		},
	},
	{
		name: "foreign key is no hold",
		says: saysForeign, needs: plant,
		run: func(h *harness) {
			a := h.exclusive("A")
			if err := a.giveUp(false); err == nil {
				h.fail("Release("+describeRef(a.ref())+")", "nil", "ErrForeignKey or ErrLost")
			}
			if err := h.renew(a.ref())[0]; err == nil {
				h.fail("Renew("+describeRef(a.ref())+")", "nil", "ErrForeignKey or ErrLost")
			}
		},
	},
	{
		name: "foreign key stays",
		says: saysForeign, needs: plant,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.giveUp(false)
			a.giveUp(true)
			h.renew(a.ref())
			if s, ok := h.main.(store.Breaker); ok {
				if n, err := s.Break(h.ctx, h.name); n > 0 {
					h.fail("Break", fmt.Sprintf("%d, %s", n, describeError(err)), "0, for it is no hold")
				}
			}
			h.exclusive("B").refused(store.ErrForeignKey)
		},
	},
	{
		name: "foreign key is shown as an error",
		says: saysForeign, needs: plant,
		run: func(h *harness) {
			if s, err := h.main.Inspect(h.ctx, h.name); !errors.Is(err, store.ErrForeignKey) {
				h.fail("Inspect", fmt.Sprintf("%+v, %s", s, describeError(err)), "ErrForeignKey")
			}
		},
	},
}

// withContext makes every call with a ctx that is over. A store may answer
// all the same, if it need not wait; it may not stay away or guess, and its
// errors name no whole id.
func (h *harness) withContext(ctx context.Context) {
	a := h.exclusive("A")
	a.hold()
	b := h.exclusive("B").waiting()
	h.mu.Lock()
	h.refs[b.req.ID] = b.ref()
	h.mu.Unlock()

	calls := []struct {
		text string
		call func() error
	}{
		{describeRequest(b.req), func() error { _, err := h.main.Acquire(ctx, b.req); return err }},
		{"Renew", func() error {
			errs := h.main.Renew(ctx, []store.Ref{a.ref(), a.ref()})
			if len(errs) != 2 {
				h.fail("Renew(2 holds)", describeErrors(errs), "2 results")
			}
			return errors.Join(errs...)
		}},
		{"Inspect", func() error { _, err := h.main.Inspect(ctx, h.name); return err }},
		{"Release", func() error { return h.main.Release(ctx, b.ref()) }},
	}
	for _, c := range calls {
		var err error
		end := h.traceCall(func() string { return c.text + " with a ctx that is over" }, func() string { return describeError(err) })
		err = c.call()
		end()
		if took := h.last.answered - h.last.sent; took > h.prompt() {
			h.fail(c.text, fmt.Sprintf("%s after %v", describeError(err), took), "an answer soon after the ctx ended")
		}
		for _, wrong := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrForeignKey, store.ErrLost} {
			if errors.Is(err, wrong) && !(c.text == "Release" && isLost(err)) {
				h.fail(c.text, describeError(err), "nil or an unknown outcome")
			}
		}
		h.wantNoSecret(err, a, b)
	}
	h.wantHolders(a)
}
