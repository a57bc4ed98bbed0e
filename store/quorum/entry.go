package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// entry is what a handle knows of one acquisition id. Operations on one id take
// turns: a release that overtook an ask of its own id would leave behind what
// the ask then got.
type entry struct {
	turn chan struct{} // holds one value while an operation is at work
	refs int           // operations at work or waiting for it; guarded by table.mu

	mu       sync.Mutex
	until    time.Time     // nothing of it can be alive after that
	asks     []int         // of each node: asks on their way
	unknown  []bool        // of each node: some ask has no known outcome
	tainted  []bool        // of each node: a release may still arrive there
	late     []bool        // of each node: it granted an ask when nobody waited for that, and has not refused one since
	req      store.Request // of the last ask
	waits    bool          // some ask was answered in a way that its owner releases it for
	granted  bool
	ends     time.Time // of the grant, as far as is known
	token    uint64    // of the grant
	released bool      // what is still on its way must not bring it back
	gone     bool      // a majority has released it

	partial bool // the last ask got something, but no majority
	splits  int  // how often it was given back
	promise promise
}

// enter waits for its turn. Who has left has none: else those whom a slow node makes
// leave one after the other would stand in the way of the next.
func (e *entry) enter(base, caller context.Context) error {
	select {
	case <-base.Done():
		return store.ErrClosed
	case <-caller.Done():
		return caller.Err()
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-base.Done():
		return store.ErrClosed
	case <-caller.Done():
		return caller.Err()
	}
}

func (e *entry) leave() { <-e.turn }

// begin notes that the id is asked for, perhaps once more.
func (e *entry) begin(req store.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.req, e.released, e.gone = req, false, false
	if e.granted && time.Now().After(e.ends) {
		e.granted = false
	}
}

// answer notes what an ask is answered with: whether its owner releases the id.
func (e *entry) answer(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waits = e.waits || err == nil || !certain(err)
}

// grant notes that a majority has granted the id, until ends if it is not renewed.
func (e *entry) grant(token uint64, ends time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.granted, e.token, e.partial, e.splits = true, token, false, 0
	if ends.After(e.ends) {
		e.ends = ends
	}
}

// inUse: it is a grant that somebody may rely on.
func (e *entry) inUse() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.granted
}

// isOwned: its owner has heard of it what he releases it for.
func (e *entry) isOwned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waits || e.granted
}

// isSpoilt: releases may still arrive at so many nodes that fewer than need can vote.
func (e *entry) isSpoilt(need int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	clean := 0
	for _, tainted := range e.tainted {
		if !tainted {
			clean++
		}
	}
	return clean < need
}

// grants: it is a grant to the owner of req, of the same name.
func (e *entry) grants(req store.Request, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.granted && now.Before(e.ends) && e.req.Owner == req.Owner && e.req.Name == req.Name
}

// granting returns the token of the grant that it is, 0 if it is none.
func (e *entry) granting() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.granted {
		return 0
	}
	return e.token
}

// sending notes that an ask goes to node i, and returns what its outcome is told to.
func (e *entry) sending(i int) (done func(known bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.send(i)
}

// resending is sending for a grant that node i has lost, with what it is asked for;
// done is nil if the node is not to have it again.
func (e *entry) resending(i int) (req store.Request, token uint64, done func(known bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.granted || e.released || e.tainted[i] || !time.Now().Before(e.ends) {
		return req, 0, nil
	}
	return e.req, e.token, e.send(i)
}

// send is sending for callers that have mu.
func (e *entry) send(i int) (done func(known bool)) {
	e.asks[i]++
	return func(known bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asks[i]--
		if !known {
			e.unknown[i] = true
		}
	}
}

// open: an ask may still arrive at node i, or may have arrived unheard.
func (e *entry) open(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asks[i] > 0 || e.unknown[i]
}

// unheard is open of all nodes.
func (e *entry) unheard() []bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := slices.Clone(e.unknown)
	for i, asks := range e.asks {
		open[i] = open[i] || asks > 0
	}
	return open
}

// taint notes that a release may arrive at node i for d from now on.
func (e *entry) taint(i int, d time.Duration) {
	e.lasts(d)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tainted[i] = true
}

// noteLate notes whether node i granted the last ask when nobody waited for that any more.
func (e *entry) noteLate(i int, held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late[i] = held
}

func (e *entry) heldLate(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.late[i]
}

func (e *entry) isTainted(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tainted[i]
}

// bygone notes that a majority has released the id, and isGone reports that.
func (e *entry) bygone() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
}

func (e *entry) isGone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gone
}

// lasts notes that something of the entry may be alive for d from now on.
func (e *entry) lasts(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := time.Now().Add(d); until.After(e.until) {
		e.until = until
	}
}

// settle notes that the id is nowhere any more, if all is known of it.
func (e *entry) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.asks {
		if e.asks[i] > 0 || e.unknown[i] || e.tainted[i] {
			return
		}
	}
	e.until = time.Time{}
}

// over: nothing has to be remembered.
func (e *entry) over(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.until.After(now)
}

// table is the entries of a handle by id. What its owner forgets, for instance
// because it was refused, goes when its time is up: each new entry looks at two
// others, which the map picks at random.
type table struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// take returns the entry of an id, which it makes if there is none and nodes is
// not 0. Give it back with put.
func (t *table) take(id string, nodes int) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		if nodes == 0 {
			return nil
		}
		t.sweep()
		e = &entry{turn: make(chan struct{}, 1), asks: make([]int, nodes), unknown: make([]bool, nodes), tainted: make([]bool, nodes), late: make([]bool, nodes)}
		if t.entries == nil {
			t.entries = make(map[string]*entry)
		}
		t.entries[id] = e
	}
	e.refs++
	return e
}

func (t *table) put(id string, e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.refs--; e.refs == 0 && e.over(time.Now()) {
		t.drop(id, e)
	}
}

// granted counts the grants to the owner of req, of the same name, but for one. It looks
// at all entries.
func (t *table) granted(req store.Request, but *entry) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, e := range t.entries {
		if e != but && e.grants(req, now) {
			n++
		}
	}
	return n
}

func (t *table) sweep() {
	now, looked := time.Now(), 0
	for id, e := range t.entries {
		if e.refs == 0 && e.over(now) {
			t.drop(id, e)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

func (t *table) drop(id string, e *entry) {
	e.promise.keep()
	if t.entries[id] == e {
		delete(t.entries, id)
	}
}

// clear ends all timers.
func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, e := range t.entries {
		t.drop(id, e)
	}
}
