package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// effects are what has to be done about handles that ended once the shard is
// unlocked: cancelling contexts runs other people's code.
type effects struct {
	ending  ending // the first, without an allocation
	endings []ending
	losses  []loss
}

// ending is what has to be called with the reason why a handle ended: what cancels a
// context, or what AtEnd was given.
type ending struct {
	call   func(error)
	reason error
}

// loss is what is told of one storeHold that was lost.
type loss struct {
	store *storeHold
	cause error
	told  []*Handle // the oldest delivered handle of each owner
}

// lose ends all handles as lost. The shard is locked, and the lease has run out or
// the store has said that it is gone. Only the first call finds owners.
func (s *storeHold) lose(fx *effects) {
	if len(s.owners) == 0 {
		return
	}
	n := s.place.name
	l := loss{store: s, cause: s.cause()}
	for len(s.owners) > 0 {
		g := s.owners[0]
		var oldest *Handle
		for g.handles != nil {
			if g.handles.delivered {
				oldest = g.handles
			}
			g.owner.lost++
			fx.end(g.handles, l.cause)
		}
		s.end(g)
		if oldest != nil {
			l.told = append(l.told, oldest)
		}
	}
	fx.losses = append(fx.losses, l)
	n.shard.counts.lose(l.cause)
	// The local deadline comes before the store's, so the hold may still be there.
	s.place.request.AbandonLost()
	n.client.renewals.ended(s)
	if n.ownerHolds == 0 {
		n.dropSpares()
	}
}

// cause says why a lease that is not valid any more was lost.
func (s *storeHold) cause() error {
	switch cause, _ := s.lease.Cause(); {
	case cause == watchdog.ToldLost:
		return ErrGone
	case cause == watchdog.CapReached:
		return ErrMaxHold
	case s.place.config.Fixed:
		return ErrFixedEnded
	default:
		return ErrDeadline
	}
}

// end ends one handle for the reason err. The shard is locked.
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
	h.ended.Store(true)
	if h.done != nil {
		close(h.done)
	}
	fx.add(h.inDo, err)
	for _, cancel := range h.contexts {
		fx.add(cancel, err)
	}
	h.contexts = nil
}

// add has f called with err, unless f is nil.
func (fx *effects) add(f func(error), err error) {
	switch {
	case f == nil:
	case fx.ending.call == nil:
		fx.ending = ending{f, err}
	default:
		fx.endings = append(fx.endings, ending{f, err})
	}
}

// run does it. Neither OnLost nor the logger may keep the watchdog from telling
// others, so both have goroutines of their own.
func (fx *effects) run(c *Client) {
	if e := fx.ending; e.call != nil {
		e.call(e.reason)
	}
	for _, e := range fx.endings {
		e.call(e.reason)
	}
	for _, l := range fx.losses {
		req, cause := &l.store.place.request, l.cause
		for _, h := range l.told {
			if c.config.OnLost != nil {
				c.onLost.add(func() { c.config.OnLost(h) })
			}
			c.logs.add(func() {
				c.log.Warn("dlock: hold lost", "name", req.Name(), "cause", cause.Error(), "token", h.Token(), "id", store.Short(req.ID()))
			})
		}
	}
}

// expired is told by the watchdog that a lease ran out or is gone at the store.
func (c *Client) expired(l *watchdog.Lease, _ watchdog.Cause) {
	s := l.Value.(*storeHold)
	sh := s.place.name.shard
	sh.calls.Add()
	defer sh.calls.Done()
	var fx effects
	sh.mu.Lock()
	s.lose(&fx)
	sh.mu.Unlock()
	fx.run(c)
}

// renew is the watchdog's way to the store: one call for a batch of leases.
func (c *Client) renew(ctx context.Context, batch []*watchdog.Lease) []watchdog.Outcome {
	refs := make([]store.Ref, len(batch))
	for i, lease := range batch {
		refs[i] = lease.Value.(*storeHold).place.request.RenewalRef()
	}
	outcomes := make([]watchdog.Outcome, len(batch)) // Unknown, unless told otherwise
	failed := make(map[*storeHold]error)
	for i, err := range c.sender.Renew(ctx, refs) {
		if i >= len(outcomes) {
			break
		}
		s := batch[i].Value.(*storeHold)
		switch {
		case err == nil:
			outcomes[i] = watchdog.Renewed
			c.renewed.Add(1)
		case errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrForeignKey):
			// Where something else is under the lock's key, the hold is not there any more.
			outcomes[i] = watchdog.Lost
		default:
			failed[s] = err
		}
	}
	c.renewals.note(c, batch, failed)
	return outcomes
}

// goneAtRelease tells that a hold was gone when it was released.
func (c *Client) goneAtRelease(h *Handle, err error) error {
	req := &h.turn.store.place.request
	token := h.turn.token
	sh := h.shard()
	sh.mu.Lock()
	sh.counts.lose(ErrGone)
	sh.mu.Unlock()
	c.logs.add(func() {
		c.log.Warn("dlock: hold was gone when it was released", "name", req.Name(), "token", token, "id", store.Short(req.ID()))
	})
	if c.config.OnLost != nil {
		c.onLost.add(func() { c.config.OnLost(h) })
	}
	if !errors.Is(err, store.ErrLost) {
		err = fmt.Errorf("%w: %w", store.ErrLost, err)
	}
	return err
}
