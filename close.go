package dlock

import (
	"fmt"
	"time"
)

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Close ends the client. Calls that wait return ErrClosed, and later calls do
// so at once. What is held is released: its handles end with an error that
// matches ErrNotHeld and ErrClosed, their contexts are cancelled. Close returns
// when the store has confirmed all that, or after twice StoreTimeout (plus the
// time that the store takes to return from calls that are cut off): then it
// returns an *Error with ErrUnavailable, and what was not confirmed is left to
// its lease. Nothing of the client runs afterwards but OnLost callbacks and
// calls of the logger that have not returned. The store is not closed. A second Close returns nil at once.
func (c *Client) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(c.closing)
	c.unlisten()
	for i := range c.names.shards {
		c.closeHolds(&c.names.shards[i])
	}

	c.dog.Close() // before the wait: what it told lost is among what is waited for

	bound := 2 * c.opts.timeout(c.opts.TTL)
	c.calls.wait(bound)
	c.calls.close()
	returned := c.calls.wait(bound + time.Second)

	if left := c.cleaner.left(); left > 0 || !returned {
		err := fmt.Errorf("%w: %d releases not confirmed within %v, left to their leases", ErrUnavailable, left, bound)
		return &Error{Op: "close", Err: err}
	}
	return nil
}

// closeHolds ends all holds of a shard and has them released. No hold is added
// afterwards: install looks at closing under the same mutex.
func (c *Client) closeHolds(sh *shard) {
	var after aftermath
	sh.mu.Lock()
	for _, l := range sh.names {
		for _, p := range l.parties {
			for len(p.grants) > 0 {
				g := p.grants[0]
				for g.handles != nil {
					after.end(g.handles, errClosedHold)
				}
				n := g.tenure
				n.end(g)
				if len(n.grants) == 0 {
					n.lease.Disarm()
					c.cleaner.add(n.attempt)
				}
			}
		}
	}
	sh.mu.Unlock()
	after.run()
}
