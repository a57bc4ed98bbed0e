package core

import (
	"context"
	"errors"
	"log/slog"
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
	warned bool // guarded by the shard: the contexts are cancelled, and no renewal was seen since
}

// looksInGrace is how many times the deadline is looked at between the warning and
// the end, to see a renewal.
const looksInGrace = 16

// WarnBefore cancels the contexts of the handle when d is left of its lease, or a third of the
// TTL if that is less: the hold may be that of another lock value, with a shorter TTL. It is
// called once.
func (h *Handle) WarnBefore(d time.Duration) {
	d = min(d, h.turn.place.config.TTL/3)
	deadline := h.Deadline()
	if deadline.IsZero() {
		return
	}
	g := &grace{handle: h, before: d}
	sh := h.shard()
	sh.mu.Lock()
	h.grace = g
	g.timer = time.AfterFunc(time.Until(deadline)-d, g.look)
	sh.mu.Unlock()
	h.AtEnd(func(error) { g.timer.Stop() })
}

// warns says whether the contexts are cancelled and the hold was not renewed since. The timer
// sees a renewal later than the clock does. The shard is locked.
func (g *grace) warns() bool {
	return g.warned && time.Until(g.handle.turn.place.lease.Deadline()) <= g.before
}

// look warns, or notices a renewal.
func (g *grace) look() {
	h := g.handle
	p, c, sh := h.turn.place, h.turn.place.name.client, h.shard()
	var fx effects
	sh.mu.Lock()
	deadline := p.lease.Deadline()
	if h.err != nil || deadline.IsZero() {
		sh.mu.Unlock()
		return
	}
	left := time.Until(deadline)
	again, warned := left-g.before, g.warned
	g.warned = again <= 0
	changed := g.warned != warned
	if g.warned {
		again = max(g.before/looksInGrace, time.Millisecond)
		fx.cancel(h, ErrEnding)
	}
	g.timer.Reset(again)
	sh.mu.Unlock()
	fx.run(c)
	if !changed {
		return
	}
	level, text := slog.LevelWarn, "dlock: hold ends soon unless it is renewed"
	if warned {
		level, text = slog.LevelInfo, "dlock: hold was renewed after its warning"
	}
	c.logs.add(func() {
		c.log.Log(context.Background(), level, text,
			"name", p.request.Name(), "token", h.Token(), "left", left, "id", store.Short(p.request.ID()))
	})
}
