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
	req store.Request
	idKeys

	// Guarded by records.mu.
	known
	deadline time.Time     // when its keys are deleted, or that is tried again
	ending   bool          // they are being deleted
	gone     bool          // they are deleted, and the handle has forgotten the id
	pause    time.Duration // between these tries
	revision int64         // of the last answer that was noted
	rooms    []*lease      // on which its key may hang: it counts on each of them until it is forgotten
}

// hold is the hold as it is known.
func (r *record) hold(k known) *entry {
	h := newEntry(r.idKeys, r.req)
	h.key, h.held, h.create, h.mod, h.token = k.key, true, k.create, k.create, k.token
	return h
}

// known is what the last answer said of an id.
type known struct {
	state   state
	key     string // of the hold or the place
	create  int64  // create revision of the key
	token   uint64 // of a hold
	lease   *lease // that the hold hangs on; nil if it is not one of this handle
	answers int    // how many have been noted
	over    bool   // the deadline has passed
}

type state int

const (
	unknown state = iota
	waiting
	holding
)

// records are those of a handle.
type records struct {
	s     *Store
	mu    sync.Mutex
	m     map[string]*record
	first map[string]*record // by dir: the last of those that were told of the key of the first exclusive hold
	on    bool               // the sweeper runs
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
	if !rs.on {
		rs.on = rs.s.tasks.Go(rs.sweep)
	}
	return r, true
}

// endAt sets the deadline of a record. Callers have mu.
func (rs *records) endAt(r *record, deadline time.Time) {
	if r.deadline = deadline; deadline.Before(rs.next) {
		rs.next = deadline
	}
}

// find returns the record of an id, or nil.
func (rs *records) find(id string) *record {
	r, _ := rs.knows(id)
	return r
}

// knows returns the record of an id, or nil, and what is known of the id.
func (rs *records) knows(id string) (r *record, k known) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r = rs.m[id]; r != nil {
		k = r.read()
	}
	return r, k
}

// is reports whether the record is that of its id still.
func (rs *records) is(r *record) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return !r.gone
}

// forget ends a record whose keys are gone.
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
		rs.s.leases.leave(l)
	}
	r.rooms = nil
}

// firstOf reports whether a record has the key of the first exclusive hold.
func (rs *records) firstOf(dir string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.first[dir] != nil
}

// doubt has nothing be known of an id whose release may have been carried out.
func (rs *records) doubt(r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state == holding {
		r.state = unknown
	}
}

// reads is what is known of an id.
func (rs *records) reads(r *record) known {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return r.read()
}

// read is a copy of what may change. Callers have mu.
func (r *record) read() known {
	r.over = r.ending || !time.Now().Before(r.deadline)
	return r.known
}

// note notes what an answer said to a request that was sent when the record was as since. An answer that is
// older than what has been noted in between is not. A cluster that lost its data begins at revision 1 again, so
// a low revision alone does not make an answer old. Callers have mu.
func (r *record) note(since known, revision int64, k known) bool {
	if r.answers != since.answers && revision < r.revision {
		return false
	}
	k.answers, r.revision = r.answers+1, revision
	r.known = k
	return true
}

// live reports whether the record stands and its keys are not being deleted. Callers have mu.
func (r *record) live() bool { return !r.ending && !r.gone }

// noteHold notes a hold that an answer told of, which lasts for ttl at least. It reports false if the record
// has ended, or its keys are being deleted.
func (rs *records) noteHold(r *record, since known, h *entry, revision int64, l *lease, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !r.live() {
		return false
	}
	deadline := time.Now().Add(ttl)
	if r.state == holding && r.deadline.After(deadline) {
		deadline = r.deadline
	}
	r.note(since, revision, known{state: holding, key: h.key, create: h.create, token: h.token, lease: l})
	if r.state == holding {
		rs.endAt(r, deadline)
		if r.lease != nil && !slices.Contains(r.rooms, r.lease) {
			rs.s.leases.enter(r.lease)
			r.rooms = append(r.rooms, r.lease)
		}
		if r.lacksID(r.key) {
			rs.first[r.dir] = r
		}
	}
	return true
}

// notePlace notes a place that an answer told of. It reports false if the record has ended, or its keys are
// being deleted.
func (rs *records) notePlace(r *record, since known, w *entry, revision int64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !r.live() {
		return false
	}
	if r.note(since, revision, known{state: waiting, key: w.key, create: w.create}) {
		rs.endAt(r, time.Now().Add(r.req.WaitTTL))
	}
	return true
}

// noteRenewed moves the deadline of a hold. It reports false if its time was up.
func (rs *records) noteRenewed(r *record, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	if !r.live() || !now.Before(r.deadline) {
		return false
	}
	rs.endAt(r, now.Add(ttl))
	return true
}

// roomsOf returns the leases on which the record counts.
func (rs *records) roomsOf(r *record) []*lease {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(r.rooms)
}

// roomOf returns one of a kind, or nil.
func (rs *records) roomOf(r *record, kind leaseKind) *lease {
	for _, l := range rs.roomsOf(r) {
		if l.kind == kind {
			return l
		}
	}
	return nil
}

// addRoom notes a lease on which the record has been counted, in the place of one that is dead.
func (rs *records) addRoom(r *record, l, dead *lease) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch i := slices.Index(r.rooms, dead); {
	case r.gone:
		rs.s.leases.leave(l)
	case i >= 0:
		r.rooms[i] = l
		rs.s.leases.leave(dead)
	default:
		r.rooms = append(r.rooms, l)
	}
}

// leaseFor returns a lease for a key of the record, which lives at least for atLeast.
func (rs *records) leaseFor(ctx context.Context, r *record, kind leaseKind, atLeast time.Duration) (*lease, error) {
	dead := rs.roomOf(r, kind)
	if dead != nil {
		if err := rs.s.leases.renew(ctx, dead, atLeast); !isLeaseGone(err) {
			return dead, err
		}
	}
	l, err := rs.s.leases.take(ctx, kind, atLeast)
	if err == nil {
		rs.addRoom(r, l, dead)
	}
	return l, err
}
