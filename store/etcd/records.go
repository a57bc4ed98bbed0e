package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// record is what the handle knows of an id that it asked for. Because a lease lives as long as any hold on it
// is renewed, each record has a deadline of its own, at which the handle deletes its keys.
type record struct {
	idKeys
	req store.Request

	// Guarded by records.mu.
	known
	deadline time.Time // when its keys are deleted, or that is tried again
	ending   bool      // they are being deleted
	gone     bool      // they are deleted, and the handle has forgotten the id
	rooms    []*lease  // on which its key may hang: it counts on each of them until it is forgotten
}

// known is what the last answer said of an id.
type known struct {
	said
	change int  // how often that has changed
	over   bool // the deadline has passed
}

// said is what an answer says of an id.
type said struct {
	state  state
	key    string // of the hold or the place
	create int64  // create revision of the key
	token  uint64 // of a hold
	lease  *lease // that the hold hangs on; of this handle
	text   string // of the hold
}

type state int

const (
	unknown state = iota
	waiting
	holding
)

// hold is the hold as it is known.
func (r *record) hold(k known) *entry {
	return &entry{idKeys: r.idKeys, key: k.key, held: true, create: k.create, token: k.token, text: k.text}
}

// records are those of a handle.
type records struct {
	s     *Store
	mu    sync.Mutex
	m     map[string]*record
	first map[string]*record // by dir: the last of those that were told of the key of the first exclusive hold
	next  time.Time          // no deadline is earlier
}

// track makes a record of a request that is about to be sent, or finds the one there is. Whatever becomes of
// the request, its keys go in the end.
func (rs *records) track(req store.Request, keys idKeys) (r *record, fresh bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r = rs.m[req.ID]; r != nil {
		return r, false
	}
	r = &record{req: req, idKeys: keys}
	rs.endAt(r, time.Now().Add(max(req.TTL, req.WaitTTL)))
	rs.m[req.ID] = r
	return r, true
}

// endAt sets the deadline of a record. Callers have mu.
func (rs *records) endAt(r *record, deadline time.Time) {
	if r.deadline = deadline; deadline.Before(rs.next) {
		rs.next = deadline
	}
}

// find returns the record of an id, or nil, and what is known of the id.
func (rs *records) find(id string) (r *record, k known) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r = rs.m[id]; r != nil {
		k = r.read()
	}
	return r, k
}

// read is what is known of an id.
func (rs *records) read(r *record) known {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return r.read()
}

// read is a copy of what may change. Callers have mu.
func (r *record) read() known {
	r.over = r.ending || r.gone || !time.Now().Before(r.deadline)
	return r.known
}

// note notes what an answer said to a request that was sent when the record was as since, and that it lasts for ttl at
// least. It reports false if its keys are being deleted, or another answer has told otherwise meanwhile, which may be
// the newer one: then the request is to be repeated.
func (rs *records) note(r *record, since known, e *entry, l *lease, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now, deadline := said{waiting, e.key, e.create, 0, nil, ""}, time.Now().Add(ttl)
	if e.held {
		now = said{holding, e.key, e.create, e.token, l, e.text}
	}
	if r.gone || r.ending || r.said != now && r.change != since.change {
		return false
	}
	if e.held && r.state == holding && r.deadline.After(deadline) {
		deadline = r.deadline
	}
	if rs.endAt(r, deadline); r.said == now {
		return true
	}
	r.said, r.change = now, r.change+1
	if r.lease != nil && !slices.Contains(r.rooms, r.lease) {
		rs.s.leases.count(r.lease, 1)
		r.rooms = append(r.rooms, r.lease)
	}
	if e.held && r.lacksID(r.key) {
		rs.first[r.dir] = r
	}
	return true
}

// renewed moves the deadline of a hold. It reports false if its time was up.
func (rs *records) renewed(r *record, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	if r.gone || r.ending || !now.Before(r.deadline) {
		return false
	}
	rs.endAt(r, now.Add(ttl))
	return true
}

// doubt has nothing be known of an id whose release may have been carried out. There may be no record.
func (rs *records) doubt(r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r != nil {
		r.said, r.change = said{}, r.change+1
	}
}

// forget ends a record whose keys are gone, and then its watch: an answer that comes late may have it wait until then.
func (s *Store) forget(r *record) {
	s.records.forget(r)
	s.watches.leave(r)
}

// forget ends a record.
func (rs *records) forget(r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.gone {
		return
	}
	r.gone = true
	delete(rs.m, r.req.ID)
	if rs.first[r.dir] == r {
		delete(rs.first, r.dir)
	}
	for _, l := range r.rooms {
		rs.s.leases.count(l, -1)
	}
	r.rooms = nil
}

// firstOf reports whether a record has the key of the first exclusive hold.
func (rs *records) firstOf(dir string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.first[dir] != nil
}

// roomsOf returns the leases on which the record counts.
func (rs *records) roomsOf(r *record) []*lease {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(r.rooms)
}

// leaseFor returns a lease for a key of the record, which lives at least for atLeast.
func (rs *records) leaseFor(ctx context.Context, r *record, kind leaseKind, atLeast time.Duration) (*lease, error) {
	for _, l := range slices.Backward(rs.roomsOf(r)) { // dead ones may be before it
		if l.kind != kind {
			continue
		}
		if err := rs.s.leases.renew(ctx, l, atLeast); !isLeaseGone(err) {
			return l, err
		}
		break
	}
	l, err := rs.s.leases.take(ctx, kind, atLeast)
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.rooms = append(r.rooms, l); r.gone {
		rs.s.leases.count(l, -1)
	}
	return l, nil
}
