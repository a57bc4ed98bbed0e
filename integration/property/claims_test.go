package property

import (
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// claims are what is believed to be held at this moment. A claim lasts from the
// return of the call that took the lock until the call of Unlock, or until Done
// is closed. It is Done that counts and not the moment at which somebody
// noticed: a claim is over if its Done is closed when another one begins.
//
// The order is that of a mutex and not of a clock, for in a bubble most things
// happen at the same moment.
type claims struct {
	complain func(format string, args ...any)

	mu   sync.Mutex
	live map[*dlock.Hold]believed
}

type believed struct {
	client int
	name   string
	owner  dlock.Owner
	mode   store.Mode
	token  uint64
	since  time.Time
	done   <-chan struct{}
}

func (b believed) String() string {
	return fmt.Sprintf("%s %q token %d at %s since %v", b.mode, b.name, b.token, label(b.client), b.since.Format("05.000"))
}

func (c *claims) begin(client int, h *dlock.Hold, mode store.Mode) {
	mine := believed{
		client: client, name: h.Name(), owner: h.Owner(), mode: mode,
		token: h.Token(), since: time.Now(), done: h.Done(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.live {
		if other.name != mine.name || other.owner == mine.owner || other.mode == store.Shared && mode == store.Shared {
			continue
		}
		select {
		case <-other.done:
			// Over before this one began. Its token has to be smaller, or the
			// resource would take the wrong one for the present holder.
			if other.token >= mine.token {
				c.complain("%v comes after %v", mine, other)
			}
			continue
		default:
		}
		select {
		case <-mine.done: // this one was over when its call returned
		default:
			c.complain("both are held: %v, and %v", mine, other)
		}
	}
	if c.live == nil {
		c.live = make(map[*dlock.Hold]believed)
	}
	c.live[h] = mine
}

func (c *claims) end(h *dlock.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, h)
}
