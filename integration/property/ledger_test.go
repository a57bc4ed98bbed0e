package property

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// ledger stands before the store and writes down in which order requests came
// and in which they were granted. It lets one call through at a time, so that
// there is such an order; what comes at once still comes in any order.
//
// It relies on the memory store's calling its sinks before the call returns
// that causes the event: they run while mu is held.
type ledger struct {
	memory   *memory.Store
	complain func(format string, args ...any)

	mu      sync.Mutex
	names   map[string]*page
	granted map[string]store.Request // by id, until released
	asked   map[string]store.Request
}

// page is what was written of one name.
type page struct {
	places  []place // of those that were told so, in their order
	leaving string  // the id that is being released
	newest  uint64
	trace   []string
}

type place struct {
	store.Request
	until time.Time
}

func newLedger(m *memory.Store, complain func(string, ...any)) *ledger {
	return &ledger{
		memory: m, complain: complain,
		names:   make(map[string]*page),
		granted: make(map[string]store.Request),
		asked:   make(map[string]store.Request),
	}
}

// desk is one handle of the ledger.
type desk struct {
	*memory.Store
	l *ledger
}

// peer returns a handle, whose events the ledger hears for as long as it exists,
// whether its client listens or not.
func (l *ledger) peer() *desk {
	d := &desk{l.memory.Peer(), l}
	d.Store.Listen(func(e store.Event) {
		if _, again := l.granted[e.ID]; again {
			l.complain("%s: an event for what was granted before", store.Short(e.ID))
		}
		req := l.asked[e.ID]
		l.page(req.Name).note("promoted", req)
		l.grant(req, e.Token)
	})
	return d
}

func (d *desk) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	l := d.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[req.ID] = req
	p := l.page(req.Name)
	p.leaving = req.ID // perhaps: an upgrade that is refused gives up its place
	g, err := d.Store.Acquire(ctx, req)
	p.leaving = ""
	switch {
	case err != nil && !errors.Is(err, store.ErrUpgrade):
	case err != nil:
		p.strike(req.ID)
	case g.Held:
		p.note("granted", req)
		l.grant(req, g.Token)
	default:
		p.note("queued", req)
		delete(l.granted, req.ID) // a promotion that had expired, if it was
		p.wait(req)
	}
	return g, err
}

func (d *desk) Release(ctx context.Context, ref store.Ref) error {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	p := d.l.page(ref.Name)
	p.note("released", d.l.asked[ref.ID])
	// In the call others are granted whom it stood before, and it may itself be,
	// if an expiry is noticed first.
	delete(d.l.granted, ref.ID)
	p.leaving = ref.ID
	err := d.Store.Release(ctx, ref)
	p.leaving = ""
	p.strike(ref.ID)
	delete(d.l.granted, ref.ID)
	return err
}

func (d *desk) Renew(ctx context.Context, refs []store.Ref) []error {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	return d.Store.Renew(ctx, refs)
}

func (l *ledger) page(name string) *page {
	if l.names[name] == nil {
		l.names[name] = &page{}
	}
	return l.names[name]
}

func (p *page) note(what string, req store.Request) {
	p.trace = append(p.trace, fmt.Sprintf("%v %s %s %s %s", time.Now().Format("05.000"), what, req.Mode, store.Short(req.ID), store.Short(req.Owner)))
}

func (p *page) wait(req store.Request) {
	i := slices.IndexFunc(p.places, func(o place) bool { return o.ID == req.ID })
	if i >= 0 && !p.places[i].until.After(time.Now()) {
		p.strike(req.ID) // its place had run out: it is at the end again
		i = -1
	}
	if i < 0 {
		i = len(p.places)
		p.places = append(p.places, place{Request: req})
	}
	p.places[i].until = time.Now().Add(req.WaitTTL)
}

func (p *page) strike(id string) {
	p.places = slices.DeleteFunc(p.places, func(o place) bool { return o.ID == id })
}

// grant checks that nobody was passed who could not be: someone who came before
// and still waits is passed only by its like, a reader by a reader, and by
// owners who hold already.
func (l *ledger) grant(req store.Request, token uint64) {
	p := l.page(req.Name)
	if _, again := l.granted[req.ID]; again {
		return // the same answer to a repeated request
	}
	nested := false
	for _, o := range l.granted {
		nested = nested || o.Name == req.Name && o.Owner == req.Owner
	}
	if token > p.newest {
		p.newest = token
	} else if !nested {
		l.complain("%s %q: token %d of a new grant after %d", req.Mode, req.Name, token, p.newest)
	}
	for _, o := range p.places {
		if o.ID == req.ID || nested {
			break
		}
		if o.ID != p.leaving && o.until.After(time.Now()) && (o.Mode == store.Exclusive || req.Mode == store.Exclusive) {
			l.complain("%s %s %q was granted before %s %s, who came first:\n %s", req.Mode, store.Short(req.ID), req.Name,
				o.Mode, store.Short(o.ID), strings.Join(p.trace, "\n "))
		}
	}
	p.strike(req.ID)
	l.granted[req.ID] = req
}
