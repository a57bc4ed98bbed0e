package quorum

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// entry is one acquisition id.
type entry struct {
	t     *table
	key   key
	owner key
	o     *ownerState
	users int // operations at work or waiting for their turn

	req    store.Request // the last one
	tries  []*try        // of each node, the present one
	until  time.Time     // something of it may be alive until then
	buried time.Time     // it is refused until then
	owned  bool          // some answer was one after which the caller releases the id
	phase  phase
	token  uint64    // of its hold
	ends   time.Time // of the hold, as far as is known

	partial bool         // the last request got something, but no majority
	splits  int          // how often it was given back
	events  map[int]bool // of nodes, since the last request
	timer   *time.Timer  // wakes it if only some have granted
}

// phase is what became of the requests of an id.
type phase uint8

const (
	asking  phase = iota
	granted       // by a majority
	spent         // its hold is lost, or its release was sent: the next request begins with new tries
)

// try is one use of an acquisition id at one node. It ends when its release is sent.
type try struct {
	id      string        // at the node
	asks    int           // requests on their way
	idle    chan struct{} // closed when there are none; nil: there were none
	unknown bool          // some request has no known outcome
	has     bool          // it may have a hold or a place
	held    bool          // it has a hold, as far as is known
	since   time.Time     // when it was told last that it has one
}

// open: a request may still arrive at the node, or may have arrived without an answer.
func (t *try) open() bool { return t.asks > 0 || t.unknown }

// try begins a try at node i. Its number is the handle's next: the entry may be forgotten before its last release
// arrives, and made again.
func (e *entry) try(i int) *try {
	e.t.tries++
	return &try{id: alias(e.key.of, e.t.salt, i, e.t.tries)}
}

// asked is what a node is asked for in a try of a request.
func (e *entry) asked(req store.Request, t *try) store.Request {
	req.ID, req.Owner = t.id, e.o.id
	return req
}

// ref is a hold, or a place, at a node.
func (e *entry) ref(ref store.Ref, t *try) store.Ref {
	ref.ID, ref.Owner = t.id, e.o.id
	return ref
}

// begin notes that the id is asked for, perhaps once more. It ends the tries of a hold that is over. The error says
// that the id is buried.
func (e *entry) begin() (ended map[int]*try, err error) {
	now := time.Now()
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.forgetEvents()
	if e.buried.After(now) {
		return nil, store.ErrLost
	}
	if e.phase == spent || e.phase == granted && now.After(e.ends) {
		ended, e.phase = e.end((*try).anything), asking
	}
	return ended, nil
}

// sending notes that req goes to all nodes, and returns the tries.
func (e *entry) sending(req store.Request, lasts time.Duration) []*try {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.req = req
	e.lasts(lasts)
	for i := range e.tries {
		e.send(i)
	}
	return slices.Clone(e.tries)
}

// send notes that a request goes to node i. The caller has the mutex.
func (e *entry) send(i int) *try {
	t := e.tries[i]
	if e.req.Queue {
		e.t.waiting[t.id] = e
	}
	if t.asks++; t.asks == 1 {
		t.idle = make(chan struct{})
	}
	return t
}

// resending is send for a grant that node i lacks, and returns the grant too; nil if the node is not to have it
// again.
func (e *entry) resending(i int) (t *try, req store.Request, token uint64) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if e.phase != granted || !time.Now().Before(e.ends) {
		return nil, req, 0
	}
	return e.send(i), e.req, e.token
}

// told notes what a node answered to a request of a try that was sent then. Answers come in any order: one that there is
// no hold may be older than a hold of which an answer has come before.
func (e *entry) told(t *try, sent time.Time, held bool, err error) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if t.asks--; t.asks == 0 {
		close(t.idle)
	}
	if err != nil && !certain(err) {
		t.unknown = true
		return
	}
	t.has = t.has || err == nil
	switch {
	case err == nil && held:
		t.held, t.since = true, time.Now()
	case sent.After(t.since):
		t.held = false
	}
}

// end ends those of the tries that may have left something at their nodes, and returns them. The caller has the
// mutex.
func (e *entry) end(which func(*try) bool) map[int]*try {
	ended := make(map[int]*try)
	for i, t := range e.tries {
		if (t.has || t.open()) && which(t) {
			ended[i], e.tries[i] = t, e.try(i)
			delete(e.t.waiting, t.id)
		}
	}
	return ended
}

// giveUp is end for a request that was not granted. A repeated request of a hold keeps what it has.
func (e *entry) giveUp(which func(*try) bool) map[int]*try {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if e.phase == granted {
		return nil
	}
	return e.end(which)
}

func (t *try) holds() bool    { return t.held }
func (t *try) anything() bool { return true }

// holding counts the nodes that hold the id, also those that said so when nobody waited for their answers any more.
func (e *entry) holding() (n int) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	for _, t := range e.tries {
		if t.held {
			n++
		}
	}
	return n
}

// answered notes what a request is answered with. It reports whether the caller will release the id.
func (e *entry) answered(err error) (owned bool) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.owned = e.owned || err == nil || !certain(err)
	if !e.owned {
		e.until = time.Time{} // the releases of its tries need no entry
	}
	return e.owned
}

// granting notes that a majority has granted the id, until ends if it is not renewed.
func (e *entry) granting(token uint64, ends time.Time) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.phase, e.token, e.partial, e.splits = granted, token, false, 0
	e.prolong(ends)
}

// prolong notes that the hold, if it is one, may last so long. The caller has the mutex.
func (e *entry) prolong(ends time.Time) {
	e.ends, e.until = latest(e.ends, ends), latest(e.until, ends)
}

// lasts notes that something of the entry may be alive for d from now on. The caller has the mutex.
func (e *entry) lasts(d time.Duration) {
	e.until = latest(e.until, time.Now().Add(d))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// known is what the handle knows of the holds of an owner when one of its requests is sent.
type known struct {
	token   uint64 // that a re-entry, or a repeated request, gets; 0: a new one
	again   bool   // this id is a hold already
	others  int    // other holds of the owner
	upgrade bool   // the others are shared, and the request is exclusive
}

// standing returns what is known of the owner's holds.
func (e *entry) standing(req store.Request) (k known) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	now := time.Now()
	var exclusive, shared uint64
	for other := range e.o.entries {
		if other == e || other.phase != granted || now.After(other.ends) {
			continue
		}
		k.others++
		if other.req.Mode == store.Exclusive {
			exclusive = max(exclusive, other.token)
		} else {
			shared = max(shared, other.token)
		}
	}
	k.upgrade = k.others > 0 && exclusive == 0 && req.Mode == store.Exclusive
	switch {
	case e.phase == granted:
		k.token, k.again = e.token, true
	case exclusive > 0:
		k.token = exclusive
	case req.Mode == store.Shared:
		k.token = shared
	}
	return k
}
