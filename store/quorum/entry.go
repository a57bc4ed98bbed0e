package quorum

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// entry is one acquisition id.
type entry struct {
	t  *table
	o  *ownerState
	id string

	req    store.Request // the last one
	tries  []*try        // of each node, the present one; nil: there is none
	left   [][]*try      // of each node, ended ones of which something may be left there
	phase  phase
	token  uint64    // of its hold
	ends   time.Time // of the hold, as far as is known
	until  time.Time // something of it may be alive until then
	buried time.Time // it is refused until then
	owned  bool      // some answer was one after which the caller releases the id

	parts  int          // how many requests got some nodes but no majority; rounded down to even by one that got none
	events map[int]bool // of nodes, since the last request
	timer  *time.Timer  // wakes it if only some have granted
}

// phase is what became of the requests of an id.
type phase uint8

const (
	asking  phase = iota
	granted       // by a majority
	spent         // its hold is lost, or its release was sent: the next request begins with new tries
)

// begin notes that the id is asked for, perhaps once more, for which something may be alive for d. It ends the tries of
// a hold that is over. The error says that the id is buried. The caller has the owner's turn.
func (o *ownerState) begin(req store.Request, d time.Duration) (e *entry, ended [][]*try, err error) {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	e, now := o.take(req.ID), time.Now()
	e.forgetEvents()
	if e.buried.After(now) {
		return nil, nil, store.ErrLost
	}
	if e.phase == spent || e.phase == granted && now.After(e.ends) {
		ended, e.phase = e.end(every), asking
	}
	e.req = req
	extend(&e.until, now.Add(d))
	return e, ended, nil
}

// take returns the entry of an id, which it makes if there is none. The caller has the mutex.
func (o *ownerState) take(id string) *entry {
	e := o.entries[id]
	if e == nil {
		e = &entry{t: o.t, o: o, id: id, tries: make([]*try, o.t.nodes), left: make([][]*try, o.t.nodes)}
		o.entries[id] = e
	}
	return e
}

// sending returns the tries of a request to all nodes, and what is known of the owner's holds.
func (e *entry) sending() ([]*try, known) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.forgetEvents()
	k := e.standing()
	for i := range e.tries {
		k.repeated = append(k.repeated, e.tries[i] != nil)
		if e.tries[i] == nil {
			e.tries[i] = newTry(e.id)
			e.t.tries[e.tries[i].id] = e
		}
	}
	return slices.Clone(e.tries), k
}

// asked is what a node is asked for in a try.
func (e *entry) asked(req store.Request, t *try) store.Request {
	req.ID, req.Owner = t.id, e.o.id
	return req
}

// lacking returns the try of node i and what to ask for there, if a majority has the hold and the node may lack it.
func (e *entry) lacking(i int) (t *try, req store.Request, token uint64) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if t = e.tries[i]; t == nil || e.phase != granted || !time.Now().Before(e.ends) {
		return nil, req, 0
	}
	return t, e.asked(e.req, t), e.token
}

// holding counts the nodes that hold the id, also those that said so when nobody waited for their answers any more.
func (e *entry) holding() (n int) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	for _, t := range e.tries {
		if t != nil && t.granted() {
			n++
		}
	}
	return n
}

// answered notes what a request is answered with. If the caller will not release the id, nothing of it is remembered,
// and the tries that may have left something are returned.
func (e *entry) answered(err error) (ended [][]*try) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.owned = e.owned || err == nil || !certain(err)
	if e.owned || e.phase == granted {
		return nil
	}
	ended = e.end(every)
	e.t.drop(e)
	return ended
}

// grant notes that a majority has granted the id, until ends if it is not renewed. It returns the nodes that have
// answered and lack the grant.
func (e *entry) grant(token uint64, ends time.Time) (lacking []int) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.phase, e.token, e.parts = granted, token, 0
	e.prolong(ends)
	for i, t := range e.tries {
		if e.lacks(t) {
			lacking = append(lacking, i)
		}
	}
	return lacking
}

// prolong notes that the hold, if it is one, may last so long. The caller has the mutex.
func (e *entry) prolong(ends time.Time) {
	extend(&e.ends, ends)
	extend(&e.until, ends)
}

func extend(deadline *time.Time, to time.Time) {
	if to.After(*deadline) {
		*deadline = to
	}
}

// known is what the handle knows of the holds of an owner when one of its requests is sent.
type known struct {
	token   uint64   // that a re-entry, or a repeated request, gets; 0: a new one
	at      [][]span // of each node, the tokens that it gave to the holds with that token
	again   bool     // this id is a hold already
	others  int      // other holds of the owner
	upgrade bool     // the others are shared, and the request is exclusive

	repeated []bool // of each node: it was asked for this try before
}

// span is from the token that a node has granted a hold with to the one that it has raised it to. What the node has
// granted to the owner together with the hold may have any of these.
type span struct{ from, to uint64 }

// standing returns what is known of the owner's holds. The caller has the mutex.
func (e *entry) standing() (k known) {
	now, mode := time.Now(), e.req.Mode
	var exclusive, shared uint64
	for _, other := range e.o.entries {
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
	k.upgrade = k.others > 0 && exclusive == 0 && mode == store.Exclusive
	switch {
	case e.phase == granted:
		k.token, k.again = e.token, true
	case exclusive > 0:
		k.token = exclusive
	case mode == store.Shared:
		k.token = shared
	}
	k.at = make([][]span, e.t.nodes)
	for _, hold := range e.o.entries {
		if hold.phase != granted || hold.token != k.token || now.After(hold.ends) {
			continue
		}
		for i, t := range hold.tries {
			k.at[i] = append(k.at[i], span{t.first, t.token})
		}
	}
	return k
}
