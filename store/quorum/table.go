package quorum

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// table is what a handle knows of acquisition ids. An id that its caller forgets, for instance because it was
// refused, goes when its time is up: each new entry looks at two others, which the map picks at random.
type table struct {
	salt  string // of the ids at the nodes: no other handle has it
	nodes int
	tries int // so far

	mu      sync.Mutex // guards all below, and what entries and tries say
	owners  map[key]*ownerState
	entries map[key]*entry
	waiting map[string]*entry // by the ids of tries that may wait
}

// key is a name, and an owner or an acquisition id.
type key struct{ name, of string }

// ownerState is one owner on one name. Its operations are done one after the other: a release that overtook a request
// of its id would leave behind what the request then got, and a request has to know what the owner holds.
type ownerState struct {
	turn    chan struct{} // holds one value while an operation is at work
	id      string        // at the nodes
	entries map[*entry]bool
}

// enter waits for its turn. A caller that has left gets none: otherwise callers that a slow node makes leave would
// delay the next one.
func (o *ownerState) enter(base, caller context.Context) error {
	select {
	case <-base.Done():
		return store.ErrClosed
	case <-caller.Done():
		return caller.Err()
	default:
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-base.Done():
		return store.ErrClosed
	case <-caller.Done():
		return caller.Err()
	}
}

func (o *ownerState) leave() { <-o.turn }

func newTable(nodes int) *table {
	return &table{salt: rand.Text(), nodes: nodes, owners: make(map[key]*ownerState), entries: make(map[key]*entry), waiting: make(map[string]*entry)}
}

// find returns the entry of an id, or nil. Give it back with put.
func (t *table) find(id key) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[id].used()
}

// take returns the entry of an id, which it makes if there is none. Give it back with put.
func (t *table) take(id, owner key) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		t.sweep()
		o := t.owners[owner]
		if o == nil {
			// The same at all nodes, so that one server that is given twice grants twice, and is noticed.
			o = &ownerState{turn: make(chan struct{}, 1), id: alias(owner.of, t.salt, 0, 0), entries: make(map[*entry]bool)}
			t.owners[owner] = o
		}
		e = &entry{t: t, key: id, owner: owner, o: o}
		for i := range t.nodes {
			e.tries = append(e.tries, e.try(i))
		}
		t.entries[id], o.entries[e] = e, true
	}
	return e.used()
}

func (e *entry) used() *entry {
	if e != nil {
		e.users++
	}
	return e
}

func (t *table) put(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.users--; e.over(time.Now()) {
		t.drop(e)
	}
}

// over: nothing has to be remembered.
func (e *entry) over(now time.Time) bool {
	return e.users == 0 && !e.until.After(now)
}

func (t *table) sweep() {
	now, looked := time.Now(), 0
	for _, e := range t.entries {
		if e.over(now) {
			t.drop(e)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

func (t *table) drop(e *entry) {
	e.forgetEvents()
	delete(t.entries, e.key)
	for _, try := range e.tries {
		delete(t.waiting, try.id)
	}
	if delete(e.o.entries, e); len(e.o.entries) == 0 {
		delete(t.owners, e.owner)
	}
}

// clear ends all timers.
func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		t.drop(e)
	}
}
