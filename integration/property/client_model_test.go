package property

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// identity is whom a call acts for. An explicit owner is the same one on every
// client; a private one re-enters only through the client it acts on, so for
// the others it is a stranger.
type identity struct {
	owner  int
	client *client // nil for an explicit owner
}

// party is an identity on one name at one client: what nests without a call of
// the store.
type party struct {
	owner  int
	client *client
	name   string
}

// handle is one successful call, as the model knows it.
type handle struct {
	*dlock.Hold
	party
	who   identity
	mode  store.Mode
	token uint64
	born  int       // its call, in the order of calls
	at    time.Time // its call returned
	since time.Time // of its grant: the first that returned with it
	ctx   context.Context
	state state
}

type state string

const (
	held     state = "held"
	lost     state = "lost"     // and not unlocked
	closed   state = "closed"   // by Close, and not unlocked
	unlocked state = "unlocked" // whatever it was before
)

// pending is a call that has not returned.
type pending struct {
	party
	who      identity
	mode     store.Mode
	explicit bool
	born     int
	from     time.Time
	until    time.Time // of its ctx; zero: without end
	cancel   context.CancelFunc
	canceled bool
	reply    chan reply
}

type reply struct {
	hold *dlock.Hold
	err  error
	at   time.Time
}

func (h *handle) String() string {
	return fmt.Sprintf("%s %q token %d of owner %d on %s (%s)", h.mode, h.name, h.token, h.owner, h.client, h.state)
}

func (p *pending) String() string {
	return fmt.Sprintf("%s %q for owner %d on %s", p.mode, p.name, p.owner, p.client)
}

// conflict: the two exclude each other.
func conflict(a identity, am store.Mode, b identity, bm store.Mode) bool {
	return a != b && (am == store.Exclusive || bm == store.Exclusive)
}

// outcome is how a call must end.
type outcome struct {
	err   error
	token uint64 // of the grant; 0: a new one, greater than all before
	nests bool   // in a hold here, so the client needs no store for it
}

// local is what a client knows by itself, so it holds in any weather. Not ok:
// the store decides.
func (w *world) local(p party, mode store.Mode) (o outcome, ok bool) {
	if p.client.closed {
		return outcome{err: dlock.ErrClosed}, true
	}
	for _, h := range w.handles {
		if h.party == p && h.state == lost {
			return outcome{err: dlock.ErrLost}, true
		}
	}
	for _, h := range w.handles {
		if h.party == p && h.state == held && h.mode == mode {
			return outcome{token: h.token, nests: true}, true
		}
	}
	return outcome{}, false
}

// predict is the outcome of a call in fair weather: the rules of package store,
// seen through the holds and the calls that wait. ErrHeld stands for having
// to wait.
func (w *world) predict(who identity, p party, mode store.Mode) outcome {
	if o, ok := w.local(p, mode); ok {
		return o
	}
	var own, exclusive uint64
	blocked := false
	for _, h := range w.handles {
		switch {
		case h.name != p.name || h.state != held || w.broken[h.token]:
		case h.who != who:
			blocked = blocked || conflict(who, mode, h.who, h.mode)
		case h.mode == store.Exclusive:
			exclusive = max(exclusive, h.token)
		default:
			own = max(own, h.token)
		}
	}
	switch {
	case exclusive > 0:
		return outcome{token: exclusive}
	case own > 0 && mode == store.Shared:
		return outcome{token: own}
	case own > 0 && blocked:
		return outcome{err: dlock.ErrUpgrade}
	case own > 0:
		return outcome{}
	case blocked || slices.ContainsFunc(w.waiting, func(q *pending) bool { return q.name == p.name }):
		return outcome{err: dlock.ErrHeld}
	case w.count(p) > 0: // broken, as the count of its holds in the grant shows
		return outcome{err: dlock.ErrLost}
	}
	return outcome{}
}

// unlocking is what Unlock of h must return in fair weather.
func (w *world) unlocking(h *handle) error {
	switch {
	case h.state == unlocked:
		return dlock.ErrNotHeld
	case h.state == lost:
		return dlock.ErrLost
	case h.state == closed:
		return dlock.ErrClosed
	case w.broken[h.token] && w.nested(h) == 1:
		return dlock.ErrLost // the store has it no longer, and says so now
	}
	return nil
}

// nested is how many handles hold the grant of h.
func (w *world) nested(h *handle) (n int) {
	for _, o := range w.handles {
		if o.party == h.party && o.token == h.token && o.mode == h.mode && o.state == held {
			n++
		}
	}
	return n
}

// count is what Hold.Count must say: handles of the owner, on this name, here.
func (w *world) count(p party) (n int) {
	for _, o := range w.handles {
		if o.party == p && o.state == held {
			n++
		}
	}
	return n
}

// stuck: in fair weather, whoever waits waits for somebody.
func (w *world) stuck(name string) bool {
	var waits bool
	for _, p := range w.waiting {
		if p.name != name {
			continue
		}
		waits = true
		for _, h := range w.handles {
			if h.name == name && h.state == held && !w.broken[h.token] && conflict(p.who, p.mode, h.who, h.mode) {
				return false
			}
		}
	}
	return waits
}
