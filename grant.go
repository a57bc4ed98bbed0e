package dlock

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// grant is one party's turn with a hold at the store, shared by the nested
// handles of its owner. Whether it is held is decided in one place, the lease of
// its tenure; what follows from that is guarded by the shard of its name.
type grant struct {
	tenure *tenure
	party  *party
	token  uint64

	handles *Hold // those that hold, newest first
	over    bool  // released, lost or closed: no handle is left
}

// maxHandles bounds the nested handles of one owner, long before a count wraps.
const maxHandles = math.MaxInt32

// handle adds a handle. The shard is locked and the grant is not over.
func (g *grant) handle() *Hold {
	h := &Hold{grant: g, next: g.handles}
	if g.handles != nil {
		g.handles.prev = h
	}
	g.handles = h
	g.party.refs++
	g.party.live++
	return h
}

// close ends the grant for its party. The shard is locked.
func (g *grant) close() {
	g.over = true
	p := g.party
	if i := slices.Index(p.grants, g); i >= 0 {
		p.grants = slices.Delete(p.grants, i, i+1)
	}
}

// lose ends all handles as lost. The shard is locked, and the lease has run
// out or has been told to be gone; lose also works while the watchdog, on
// another goroutine, is about to say so, for only the first call finds handles.
func (g *grant) lose(cause watchdog.Cause) aftermath {
	after := aftermath{cause: cause}
	if c := &g.tenure.client.calls; c.enter() {
		after.calls = c
	}
	for g.handles != nil {
		after.lost = g.handles // ends up as the oldest
		g.party.lost++
		after.end(g.handles, ErrLost)
	}
	g.close()
	return after
}

// end ends one handle for the reason err. The shard is locked.
func (a *aftermath) end(h *Hold, err error) {
	g := h.grant
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		g.handles = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.next, h.prev = nil, nil
	g.party.live--
	h.err = err
	h.ended.Store(true)
	if h.done != nil {
		close(h.done)
	}
	if cancel := h.inDo; cancel != nil {
		a.cancels = append(a.cancels, func() { cancel(err) })
	}
	for _, cancel := range h.contexts {
		a.cancels = append(a.cancels, func() { cancel(err) })
	}
	h.contexts = nil
}

// aftermath is what has to be done about handles that ended once the shard is
// unlocked: cancelling contexts runs other people's code.
type aftermath struct {
	cancels []context.CancelFunc
	lost    *Hold // the oldest handle of a grant that was lost
	cause   watchdog.Cause
	calls   *calls // counts run in, for Close to wait for; nil if nothing was lost
}

func (a *aftermath) run() {
	for _, cancel := range a.cancels {
		cancel()
	}
	if a.lost != nil {
		a.lost.grant.mourn(a.lost, a.cause)
	}
	if a.calls != nil {
		a.calls.exit()
	}
}

// mourn tells of a loss and clears up behind it. The local deadline comes
// before the store's, so the hold may still be there.
func (g *grant) mourn(oldest *Hold, cause watchdog.Cause) {
	c, at := g.tenure.client, g.tenure.attempt
	c.cleaner.add(at)
	c.log.Warn("dlock: hold lost", "name", at.req.Name, "cause", cause.String(), "token", g.token, "id", store.Short(at.req.ID))
	if c.opts.OnLost != nil {
		go c.opts.OnLost(oldest)
	}
}

// giveBack releases a grant whose last handle h was unlocked, and tries until
// deadline to do so.
func (g *grant) giveBack(h *Hold, deadline time.Time) error {
	c, at := g.tenure.client, g.tenure.attempt
	ref := at.ref()
	pause := backoff{limit: at.terms.timeout / 10}
	for repeated := false; ; repeated = true {
		err := c.release(ref, time.Until(deadline))
		switch {
		case err == nil || repeated && errors.Is(err, ErrLost):
			return nil // an earlier try may have done it, its reply lost
		case errors.Is(err, ErrLost) || errors.Is(err, ErrForeignKey):
			c.log.Warn("dlock: hold was gone when it was released", "name", ref.Name, "token", g.token, "id", store.Short(ref.ID))
			if c.opts.OnLost != nil {
				go c.opts.OnLost(h)
			}
			return err
		case settled(err):
			return err
		case time.Until(deadline) <= pause.limit || !pause.sleep(c.closing):
			c.log.Warn("dlock: release not confirmed yet", "name", ref.Name, "token", g.token, "id", store.Short(ref.ID), "error", err)
			c.cleaner.add(at)
			return unavailable(err)
		}
	}
}
