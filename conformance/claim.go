package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/store"
)

// claim is one acquisition as a case uses it: a request with an id of its
// own, and the latest answer to it. on, lease, place and the like prepare it
// and return it; the other methods call the store.
type claim struct {
	h     *harness
	req   store.Request
	via   store.Store
	grant store.Grant
	err   error
}

func (h *harness) exclusive(label string) *claim { return h.claim(label, store.Exclusive) }
func (h *harness) shared(label string) *claim    { return h.claim(label, store.Shared) }

// claim prepares a request with leases that do not end within the case.
func (h *harness) claim(label string, mode store.Mode) *claim {
	return &claim{h: h, via: h.main, req: store.Request{
		Name: h.name, Owner: h.owner(label), ID: h.id(), Mode: mode,
		TTL: h.long, WaitTTL: h.long, Tokens: 1, Label: "case " + label,
	}}
}

func (c *claim) on(name string) *claim          { c.req.Name = name; return c }
func (c *claim) lease(d time.Duration) *claim   { c.req.TTL = d; return c }
func (c *claim) waitTTL(d time.Duration) *claim { c.req.WaitTTL = d; return c }
func (c *claim) tokens(tokens int) *claim       { c.req.Tokens = tokens; return c }
func (c *claim) fixed() *claim                  { c.req.Fixed = true; return c }
func (c *claim) waiting() *claim                { c.req.Queue = true; return c }
func (c *claim) impatient() *claim              { c.req.Queue = false; return c }
func (c *claim) through(s store.Store) *claim   { c.via = s; return c }
func (c *claim) label(s string) *claim          { c.req.Label = s; return c }
func (c *claim) owned(owner string) *claim      { c.req.Owner = owner; return c }
func (c *claim) withID(id string) *claim        { c.req.ID = id; return c }
func (c *claim) ref() store.Ref                 { return c.refFor(c.req.TTL) }
func (c *claim) refFor(d time.Duration) store.Ref {
	r := c.req
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: d}
}

// String is how the claim shows in failures.
func (c *claim) String() string {
	return fmt.Sprintf("%s id=%s %v", describeOwner(c.req.Owner), store.Short(c.req.ID), c.req.Mode)
}

// ask calls Acquire and remembers the answer.
func (c *claim) ask() (store.Grant, error) {
	h, req := c.h, c.req
	h.mu.Lock()
	h.refs[req.ID] = c.refFor(max(req.TTL, req.WaitTTL))
	h.mu.Unlock()
	var g store.Grant
	var err error
	end := h.traceCall(func() string { return describeRequest(req) }, func() string { return describeGrant(g, err) })
	g, err = c.via.Acquire(h.ctx, req)
	end()
	c.grant, c.err = g, err
	return g, err
}

// hold asks and wants the hold.
func (c *claim) hold() store.Grant {
	g, err := c.ask()
	if err != nil || !g.Held {
		c.wrong("held")
	}
	return g
}

// behind is the first token behind those that are reserved with the hold.
func (c *claim) behind() uint64 {
	if c.grant.Short < 0 || c.grant.Short >= c.req.Tokens {
		c.wrong("short=0 to %d", c.req.Tokens-1)
	}
	return c.grant.Token + uint64(c.req.Tokens-c.grant.Short)
}

// queue asks with Queue and wants a place.
func (c *claim) queue() store.Grant {
	c.req.Queue = true
	g, err := c.ask()
	if err != nil || g.Held {
		c.wrong("queued")
	}
	return g
}

// refused asks and wants an error that matches.
func (c *claim) refused(sentinel error) store.Grant {
	g, err := c.ask()
	if !errors.Is(err, sentinel) {
		c.wrong("%s", describeError(sentinel))
	}
	return g
}

// wrong fails with the latest answer.
func (c *claim) wrong(want string, args ...any) {
	c.h.fail(describeRequest(c.req), describeGrant(c.grant, c.err), fmt.Sprintf(want, args...))
}

// giveUp calls Release.
func (c *claim) giveUp(bury bool) error {
	h := c.h
	ref := c.refFor(max(c.req.TTL, c.req.WaitTTL))
	ref.Bury = bury
	what := "Release("
	if bury {
		what = "Release(bury "
	}
	var err error
	end := h.traceCall(func() string { return what + describeRef(ref) + ")" }, func() string { return describeError(err) })
	err = c.via.Release(h.ctx, ref)
	end()
	if err == nil {
		h.mu.Lock()
		delete(h.refs, ref.ID)
		h.mu.Unlock()
	}
	return err
}

func (c *claim) release() { c.wantRelease(false, nil) }

// releaseLost wants Release to find nothing.
func (c *claim) releaseLost() { c.wantRelease(false, store.ErrLost) }

func (c *claim) bury() { c.wantRelease(true, nil) }

// buryAbsent wants Release with Bury to find nothing.
func (c *claim) buryAbsent() { c.wantRelease(true, store.ErrLost) }

func (c *claim) wantRelease(bury bool, want error) {
	if err := c.giveUp(bury); !errors.Is(err, want) {
		c.h.fail("Release("+describeRef(c.ref())+")", describeError(err), describeError(want))
	}
}

// renew wants the hold renewed to d from now.
func (c *claim) renew(d time.Duration) {
	if errs := c.h.renew(c.refFor(d)); errs[0] != nil {
		c.h.fail("Renew("+describeRef(c.ref())+")", describeError(errs[0]), "nil")
	}
}

// renewLost wants Renew to say that there is no such hold.
func (c *claim) renewLost() {
	if errs := c.h.renew(c.ref()); !isLost(errs[0]) {
		c.h.fail("Renew("+describeRef(c.ref())+")", describeError(errs[0]), "ErrLost")
	}
}

// renew calls Renew and wants as many results as holds.
func (h *harness) renew(refs ...store.Ref) []error {
	text := func() string {
		if len(refs) == 1 {
			return fmt.Sprintf("Renew(%s TTL=%v)", describeRef(refs[0]), refs[0].TTL)
		}
		return fmt.Sprintf("Renew(%d holds)", len(refs))
	}
	var errs []error
	end := h.traceCall(text, func() string { return describeErrors(errs) })
	errs = h.main.Renew(h.ctx, refs)
	end()
	if len(errs) != len(refs) {
		h.fail(text(), fmt.Sprintf("%d results", len(errs)), fmt.Sprintf("%d, one for each hold", len(refs)))
	}
	return errs
}

// inspect wants the state of a name.
func (h *harness) inspect(name string) store.State {
	var s store.State
	var err error
	end := h.traceCall(func() string { return fmt.Sprintf("Inspect(%.40q)", name) }, func() string {
		if err != nil {
			return describeError(err)
		}
		return "holders " + describeEntries(s.Holders) + " queue " + describeEntries(s.Queue)
	})
	s, err = h.main.Inspect(h.ctx, name)
	end()
	if err != nil {
		h.fail(fmt.Sprintf("Inspect(%.40q)", name), describeError(err), "nil")
	}
	return s
}

// wantHolders wants exactly these holds on the case's name, in any order.
func (h *harness) wantHolders(claims ...*claim) {
	h.same("holders", h.inspect(h.name).Holders, claims, false)
}

// wantQueue wants exactly these waiters on the case's name, head first.
func (h *harness) wantQueue(claims ...*claim) {
	h.same("queue", h.inspect(h.name).Queue, claims, true)
}

// same compares by short id. It forgives whole ids and other fields, which
// have cases of their own.
func (h *harness) same(what string, entries []store.Entry, claims []*claim, ordered bool) {
	ok := len(entries) == len(claims)
	for i := 0; ok && i < len(claims); i++ {
		found := false
		for j, e := range entries {
			found = found || store.Short(e.ID) == store.Short(claims[i].req.ID) && (!ordered || i == j)
		}
		ok = found
	}
	if ok {
		return
	}
	parts := make([]string, len(claims))
	for i, c := range claims {
		parts[i] = c.String()
	}
	h.fail("Inspect: "+what, describeEntries(entries), "["+strings.Join(parts, ", ")+"]")
}
