package core

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

// Reenter gives h a share in a hold that owner has on the name in this mode. It
// reports false if the owner has none, which a Call then finds out about.
func (c *Client) Reenter(ctx context.Context, cfg *LockConfig, owner Owner, mode store.Mode, h *Handle) (bool, error) {
	over := ended(ctx)
	sh := c.shard(cfg.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.names[cfg.Name]; n != nil && !c.isClosing.Load() {
		if o := n.find(owner); o != nil {
			return o.reenter(mode, over, h)
		}
	}
	return false, nil
}

// reenter gives h a share in a hold that o has in this mode. A reader's lock under
// one's own writer's lock is not re-entry here: the store has to know of it, so
// that the writer's can be released first. The shard is locked.
func (o *ownerState) reenter(mode store.Mode, over error, h *Handle) (bool, error) {
	if o.lost > 0 {
		return false, ErrLostOuter
	}
	for _, g := range o.holds {
		if !g.place.lease.Valid() {
			// The watchdog has not declared it yet. It will, and then tell; here
			// it is enough not to build on it.
			return false, ErrLostOuter
		}
	}
	for _, g := range o.holds {
		switch {
		case g.place.mode() != mode:
			continue
		case o.live >= maxHandles:
			return false, ErrTooManyHolds
		case over != nil:
			return false, over
		}
		g.add(h)
		h.delivered = true
		return true, nil
	}
	return false, nil
}

// mayAsk says why no more may be asked for under the identity of o: it lost a hold
// meanwhile, or another owner shares one, which would be upgraded with it. The shard is
// locked.
func (o *ownerState) mayAsk() error {
	if o.lost > 0 {
		return ErrLostOuter
	}
	for _, g := range o.holds {
		if len(g.place.owners) > 1 {
			return store.ErrUpgrade
		}
	}
	return nil
}
