package core

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// effects are what has to be done about handles that ended once the shard is
// unlocked: cancelling contexts runs other people's code.
type effects struct {
	endings []ending
	lost    []*Handle // of which a loss is told: the oldest delivered one of each owner
}

// ending is what has to be called with the reason why a handle ended: what cancels a
// context, or what AtEnd was given.
type ending struct {
	call   func(error)
	reason error
}

// endAll ends all handles because of the cause, which is a loss or ErrClosedHold. The
// shard is locked. Only the first call finds owners.
func (p *place) endAll(fx *effects, cause error) {
	if len(p.owners) == 0 {
		return
	}
	n, lost := p.name, cause != ErrClosedHold
	for len(p.owners) > 0 {
		g := p.owners[0]
		var oldest *Handle
		for g.handles != nil {
			// One that its call has not returned yet concerns nobody.
			if g.handles.delivered {
				oldest = g.handles
				if lost {
					g.owner.lose()
				}
			}
			fx.end(g.handles, cause)
		}
		p.end(g)
		if lost && oldest != nil {
			fx.tell(oldest)
		}
	}
	if lost {
		n.client.countLoss(cause)
		// The local deadline comes before the store's, so the hold may still be there.
		p.request.AbandonLost()
	}
	p.giveUp()
	n.dropSpares()
}

// cause says why a lease that is not valid any more was lost.
func (p *place) cause() error {
	switch cause := p.lease.Cause(); {
	case cause == watchdog.ToldLost:
		return ErrGone
	case cause == watchdog.CapReached:
		return ErrMaxHold
	case p.config.Fixed:
		return ErrFixedEnded
	default:
		return ErrDeadline
	}
}

// tell has the loss of the hold of h told, once: two calls of one owner may share it. The
// shard is locked.
func (fx *effects) tell(h *Handle) {
	if g := h.turn; !g.told {
		g.told = true
		h.nested = false // it stands for the hold
		fx.lost = append(fx.lost, h)
	}
}

// end ends one handle for the reason err: Done closes under the mutex, at once. What
// runs a user's code is left to run. The shard is locked.
func (fx *effects) end(h *Handle, err error) {
	fx.endContexts(h, err)
	fx.add(h.atEnd, err)
}

// endContexts is end without what AtEnd has asked for.
func (fx *effects) endContexts(h *Handle, err error) {
	g := h.turn
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		g.handles = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.next, h.prev = nil, nil
	g.owner.live--
	h.err = err
	if h.done != nil {
		close(h.done)
	}
	fx.cancel(h, err)
	h.contexts = nil
}

// cancel cancels the contexts of a handle. The shard is locked.
func (fx *effects) cancel(h *Handle, err error) {
	fx.add(h.inDo, err)
	for _, cancel := range h.contexts {
		fx.add(cancel, err)
	}
}

// add has f called with err, unless f is nil.
func (fx *effects) add(f func(error), err error) {
	if f != nil {
		fx.endings = append(fx.endings, ending{f, err})
	}
}

// run does it. Neither OnLost nor the logger may keep the watchdog from telling
// others, so both have goroutines of their own.
func (fx *effects) run(c *Client) {
	for _, e := range fx.endings {
		e.call(e.reason)
	}
	for _, h := range fx.lost {
		c.tellLost(h, "dlock: hold lost", "cause", h.err.Error())
	}
}

// tellLost has a loss logged, and OnLost called.
func (c *Client) tellLost(h *Handle, text string, attrs ...any) {
	if c.config.OnLost != nil {
		c.onLost.add(func() { c.config.OnLost(h) })
	}
	req := &h.turn.place.request
	attrs = append([]any{"name", req.Name()}, append(attrs, "token", h.Token(), "id", store.Short(req.ID()))...)
	c.warn(text, attrs...)
}

// expired is told by the watchdog that a lease ran out or is gone at the store.
func (c *Client) expired(l *watchdog.Lease) {
	p := l.Value.(*place)
	sh := p.name.shard
	var fx effects
	sh.mu.Lock()
	p.endAll(&fx, p.cause())
	sh.mu.Unlock()
	fx.run(c)
}

// goneAtRelease tells that a hold was gone when it was released: since its last renewal
// the store lost it, or an operator broke it. Another owner may have had the lock
// meanwhile, so Unlock says so, although nothing is left to release.
func (c *Client) goneAtRelease(h *Handle, err error) error {
	c.countLoss(ErrGone)
	h.nested = false // it stands for the hold, and nobody else has it
	c.tellLost(h, "dlock: hold was gone when it was released")
	if !errors.Is(err, store.ErrLost) {
		err = fmt.Errorf("%w: %w", store.ErrLost, err)
	}
	return err
}
