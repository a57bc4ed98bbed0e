package core

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/store"
)

// ErrEnding is the cause that the contexts of a hold end with before the hold does.
var ErrEnding = errors.New("hold ends soon unless it is renewed")

// grace warns the holder of one handle before its lease can end. It looks at the
// deadline by a timer of its own, so holds without it pay nothing.
type grace struct {
	handle *Handle
	before time.Duration
	timer  *time.Timer
	warned bool
}

// looksInGrace is how many times the deadline is looked at between the warning and
// the end, to see a renewal.
const looksInGrace = 16

// WarnBefore cancels the contexts of the handle when d is left of its lease. It is
// called once.
func (h *Handle) WarnBefore(d time.Duration) {
	deadline := h.Deadline()
	if deadline.IsZero() {
		return
	}
	g := &grace{handle: h, before: d}
	sh := h.shard()
	sh.mu.Lock()
	g.timer = time.AfterFunc(time.Until(deadline)-d, g.look)
	sh.mu.Unlock()
	h.AtEnd(func(error) { g.timer.Stop() })
}

// look warns, or notices a renewal.
func (g *grace) look() {
	h := g.handle
	c, sh := h.turn.owner.name.client, h.shard()
	busy := c.sender.Busy()
	busy.Add()
	defer busy.Done()
	sh.mu.Lock()
	deadline := h.turn.place.lease.Deadline()
	if h.err != nil || deadline.IsZero() {
		sh.mu.Unlock()
		return
	}
	var cancels []context.CancelCauseFunc
	left := time.Until(deadline)
	again, warned := left-g.before, g.warned
	g.warned = again <= 0
	h.ending = g.warned
	if g.warned {
		again = max(g.before/looksInGrace, time.Millisecond)
	}
	if g.warned && !warned {
		cancels = h.cancels()
	}
	g.timer.Reset(again)
	sh.mu.Unlock()
	for _, cancel := range cancels {
		cancel(ErrEnding)
	}
	if g.warned != warned {
		c.logGrace(h, g.warned, left)
	}
}

// cancels returns what cancels the contexts of the handle. The shard is locked.
func (h *Handle) cancels() (list []context.CancelCauseFunc) {
	if h.inDo != nil {
		list = append(list, h.inDo)
	}
	for _, cancel := range h.contexts {
		list = append(list, cancel)
	}
	return list
}

func (c *Client) logGrace(h *Handle, warned bool, left time.Duration) {
	req, token := &h.turn.place.request, h.Token()
	c.logs.add(func() {
		attrs := []any{"name", req.Name(), "token", token, "left", left, "id", store.Short(req.ID())}
		if warned {
			c.log.Warn("dlock: hold ends soon unless it is renewed", attrs...)
		} else {
			c.log.Info("dlock: hold was renewed after its warning", attrs...)
		}
	})
}
