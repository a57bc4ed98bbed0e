package dlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// grant is one party's turn with a hold at the store, had by the nested
// handles of its owner. Whether it is held is decided in one place, the lease of
// its tenure; what follows from that is guarded by the shard of its name.
type grant struct {
	tenure *tenure
	party  *party
	token  uint64

	handles *Hold // those that hold, newest first
}

// maxHandles bounds the nested handles of one owner, long before a count wraps.
const maxHandles = math.MaxInt32

// handle adds a handle. The shard is locked and the grant has not ended.
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

// lose ends all handles as lost. The shard is locked, and the lease has run
// out or has been told to be gone; lose also works while the watchdog, on
// another goroutine, is about to say so, for only the first call finds grants.
func (n *tenure) lose(cause watchdog.Cause) aftermath {
	after := aftermath{tenure: n, cause: cause}
	if c := &n.client.calls; c.enter() {
		after.calls = c
	}
	for len(n.grants) > 0 {
		g := n.grants[0]
		var oldest *Hold
		for g.handles != nil {
			oldest = g.handles
			g.party.lost++
			after.end(g.handles, ErrLost)
		}
		n.end(g)
		after.lost = append(after.lost, oldest)
	}
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
	tenure  *tenure // that was lost, or nil
	lost    []*Hold // the oldest handle of each of its grants
	cause   watchdog.Cause
	calls   *calls // counts run in, for Close to wait for; nil if nothing was lost
}

func (a *aftermath) run() {
	for _, cancel := range a.cancels {
		cancel()
	}
	if len(a.lost) > 0 {
		a.tenure.mourn(a.lost, a.cause)
	}
	if a.calls != nil {
		a.calls.exit()
	}
}

// mourn tells of a loss and clears up behind it. The local deadline comes
// before the store's, so the hold may still be there. Neither OnLost nor the logger may
// keep the watchdog from telling others.
func (n *tenure) mourn(lost []*Hold, cause watchdog.Cause) {
	c, at := n.client, n.attempt
	c.cleaner.add(at)
	for _, h := range lost {
		if c.opts.OnLost != nil {
			go c.opts.OnLost(h)
		}
		go c.log.Warn("dlock: hold lost", "name", at.req.Name, "cause", cause.String(), "token", h.Token(), "id", store.Short(at.req.ID))
	}
}

// giveBack releases a grant whose last handle h was unlocked, and tries until
// deadline to do so.
func (g *grant) giveBack(h *Hold, deadline time.Time) error {
	c, at := g.tenure.client, g.tenure.attempt
	ref := at.part()
	defer at.parted()
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
			if !errors.Is(err, ErrLost) {
				err = fmt.Errorf("%w: %w", ErrLost, err)
			}
			return err
		case errors.Is(err, ErrClosed):
			c.cleaner.add(at) // which cannot release it either, and tells Close
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
