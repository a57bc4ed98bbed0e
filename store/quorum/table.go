package quorum

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// table is what a handle knows of its owners and their acquisition ids. An id that its caller never releases goes when
// its time is up: each operation looks at one other owner, which the map picks at random.
type table struct {
	nodes int
	salt  string // of the owners' ids at the nodes: no other handle has it

	mu     sync.Mutex // guards all below, and what owners, entries and tries say
	owners map[key]*ownerState
	tries  map[string]*entry // by the ids of their present tries
}

type key struct{ name, owner string }

// ownerState is one owner on one name. Its acquires and releases are done one after the other: a request has to know
// what the owner holds.
type ownerState struct {
	t       *table
	key     key
	id      string        // at the nodes
	turn    chan struct{} // holds one value while an operation is at work
	users   int           // operations at work or waiting for their turn
	entries map[string]*entry
}

func newTable(nodes int) *table {
	return &table{nodes: nodes, salt: rand.Text(), owners: make(map[key]*ownerState), tries: make(map[string]*entry)}
}

// enter waits for the turn of an operation, until leave.
func (t *table) enter(ctx, base context.Context, k key) (*ownerState, error) {
	t.mu.Lock()
	o := t.owners[k]
	if o == nil {
		o = &ownerState{t: t, key: k, id: ownerAlias(k.owner, t.salt)}
		o.turn, o.entries = make(chan struct{}, 1), make(map[string]*entry)
		t.owners[k] = o
	}
	o.users++
	t.mu.Unlock()
	select {
	case o.turn <- struct{}{}:
		return o, nil
	case <-ctx.Done():
		t.forget(o)
		return nil, ctx.Err()
	case <-base.Done():
		t.forget(o)
		return nil, store.ErrClosed
	}
}

func (t *table) leave(o *ownerState) {
	<-o.turn
	t.forget(o)
}

// forget ends an operation of the owner, and drops what need not be remembered of this owner and of any other one.
func (t *table) forget(o *ownerState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.users--
	t.clean(o)
	for _, other := range t.owners {
		t.clean(other)
		break
	}
}

func (t *table) clean(o *ownerState) {
	if o.users > 0 {
		return
	}
	now := time.Now()
	for _, e := range o.entries {
		if !e.until.After(now) {
			t.drop(e)
		}
	}
	if len(o.entries) == 0 {
		delete(t.owners, o.key)
	}
}

// drop forgets an id. The caller has the mutex, and the owner's turn if operations of the owner are at work.
func (t *table) drop(e *entry) {
	e.forgetEvents()
	e.end(every)
	delete(e.o.entries, e.id)
}
