package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// renew is the watchdog's way to the store: one call for a batch of leases.
func (c *Client) renew(ctx context.Context, batch []*watchdog.Lease) []watchdog.Outcome {
	refs := make([]store.Ref, len(batch))
	for i, lease := range batch {
		at := lease.Value.(*tenure).attempt
		refs[i] = at.ref()
		refs[i].TTL, refs[i].Bury = at.req.TTL, false
	}
	outcomes := make([]watchdog.Outcome, len(batch)) // Unknown, unless told otherwise
	var failure error
	for i, err := range c.store.Renew(ctx, refs) {
		switch {
		case i >= len(outcomes):
		case err == nil:
			outcomes[i] = watchdog.Renewed
		case errors.Is(err, ErrLost) || errors.Is(err, ErrForeignKey):
			outcomes[i] = watchdog.Lost
		default:
			failure = err
		}
	}
	c.noteRenewal(failure)
	return outcomes
}

// noteRenewal logs when renewals begin to fail and when they succeed again, not
// every one between. A logger that blocks does not hold up those that have succeeded.
func (c *Client) noteRenewal(failure error) {
	switch {
	case failure != nil && !c.failing.Swap(true):
		go c.log.Warn("dlock: renewals fail; holds are lost when their leases run out", "error", failure)
	case failure == nil && c.failing.Load() && c.failing.Swap(false):
		go c.log.Info("dlock: renewals succeed again")
	}
}

// expired is told by the watchdog that a lease ran out or is gone at the store.
func (c *Client) expired(l *watchdog.Lease, cause watchdog.Cause) {
	n := l.Value.(*tenure)
	sh := n.shard
	sh.mu.Lock()
	after := n.lose(cause)
	sh.mu.Unlock()
	after.run()
}
