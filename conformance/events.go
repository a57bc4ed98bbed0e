package conformance

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

// listen registers a sink that remembers events, or calls also instead.
func (h *harness) listen(s store.Store, also func(store.Event)) (stop func()) {
	if also != nil {
		return s.Listen(also)
	}
	return s.Listen(func(e store.Event) {
		at := h.now()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.trace.add(&line{at: at, text: func() string {
			if e == (store.Event{}) {
				return "Event{}"
			}
			return fmt.Sprintf("Event{id=%s token=%d short=%d}", store.Short(e.ID), e.Token, e.Short)
		}})
		h.events = append(h.events, heard{e, s, at})
		close(h.changed)
		h.changed = make(chan struct{})
	})
}

// prompt is how long a call may take that has nothing to wait for. On the
// real clock only minutes of a held lock tell waiting from a slow machine.
func (h *harness) prompt() time.Duration {
	if h.Bubble {
		return h.ttl
	}
	return h.deadline / 3
}

// patience is how long something that is pushed may take to arrive: a few
// leases, but long enough for a machine that is busy.
func (h *harness) patience() time.Duration { return min(max(10*h.ttl, 3*time.Second), h.deadline/3) }

// wake wants the event of a claim and returns its token.
func (h *harness) wake(c *claim) uint64 {
	e, ok := h.await(c.req.ID, 0, h.patience())
	if !ok {
		h.fail("(wait for an event)", fmt.Sprintf("none for %v within %v", c, h.patience()), "its grant is pushed")
	}
	return e.Token
}

// await waits for an event of an id after the first few that are known.
func (h *harness) await(id string, known int, atMost time.Duration) (heard, bool) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		h.mu.Lock()
		changed := h.changed
		count := 0
		for _, e := range h.events {
			if e.ID != id {
				continue
			}
			if count++; count > known {
				h.mu.Unlock()
				return e, true
			}
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return heard{}, false
		case <-h.ctx.Done():
			return heard{}, false
		}
	}
}

// heardOf counts the events of a claim so far; a nil claim counts the zero
// events, which may come at any time.
func (h *harness) heardOf(c *claim) (n int) {
	var id string
	if c != nil {
		id = c.req.ID
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.ID == id {
			n++
		}
	}
	return n
}

// quiet gives events that should not come the time to come. There is nothing
// to wait for but time: real time, since messages travel in it.
func (h *harness) quiet() {
	timer := time.NewTimer(min(h.ttl/2, 300*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// wantNoWake wants that a claim was not woken.
func (h *harness) wantNoWake(c *claim) {
	if h.heardOf(c) > 0 {
		h.failf("no event for it", "an event for %v", c)
	}
}

func fmtToken(how string, token uint64) string { return fmt.Sprintf("%s token %d", how, token) }
