package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// record is what the handle knows of an id that it asked for. Because a lease lives as
// long as any hold on it is renewed, each record has a deadline of its own, at which the
// handle deletes its keys.
type record struct {
	req  store.Request
	keys idKeys

	// Guarded by records.mu.
	deadline time.Time
	ending   bool          // its keys are being deleted
	retry    time.Time     // when deleting them is tried again
	pause    time.Duration // between these tries
	answers  int           // how many answers have been noted
	revision int64         // of the last of them
	known
	holdRoom  *lease // in which its hold is counted
	placeRoom *lease // in which its place is counted, which may have become a hold
}

// known is what the last answer said of an id.
type known struct {
	state  state
	create int64  // of the key of the hold or the place
	token  uint64 // of a hold
	place  int64  // of a hold that waited: the create revision of its place
	lease  *lease // that the hold hangs on; nil if it is not one of this handle
	over   bool   // the deadline has passed
}

type state int

const (
	unknown state = iota
	waiting
	holding
)

// records are those of a handle.
type records struct {
	s  *Store
	mu sync.Mutex
	m  map[string]*record
	on bool // the sweeper runs

	toEnd  []*record
	enders int // how many goroutines delete keys
}

// track makes a record of a request that is about to be sent, or finds the one there
// is. Whatever becomes of the request, its keys go in the end.
func (rs *records) track(req store.Request, keys idKeys) (r *record, fresh bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r = rs.m[req.ID]
	if fresh = r == nil; fresh {
		r = &record{req: req, keys: keys, deadline: time.Now().Add(max(req.TTL, req.WaitTTL))}
		rs.m[req.ID] = r
		if !rs.on {
			rs.on = rs.s.tasks.Go(rs.sweep)
		}
	}
	return r, fresh
}

// find returns the record of an id, or nil.
func (rs *records) find(id string) *record {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.m[id]
}

// forget ends a record whose keys are gone.
func (rs *records) forget(r *record) {
	rs.mu.Lock()
	hold, place := r.holdRoom, r.placeRoom
	r.holdRoom, r.placeRoom = nil, nil
	if rs.m[r.req.ID] == r {
		delete(rs.m, r.req.ID)
	}
	rs.mu.Unlock()
	rs.s.leases.leave(hold)
	rs.s.leases.leave(place)
}

// is reports whether the record is that of its id still.
func (rs *records) is(r *record) bool { return rs.find(r.req.ID) == r }

// reads is a copy of what may change, and how many answers it is from.
func (rs *records) reads(r *record) (k known, answers int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k = r.known
	k.over = r.ending || !time.Now().Before(r.deadline)
	return k, r.answers
}

// stale reports whether an answer to a request that was sent after so many answers is
// older than what has been noted since. A cluster that lost its data begins at revision 1
// again, so a low revision alone does not make an answer old.
func (r *record) stale(since int, revision int64) bool {
	return r.answers != since && revision < r.revision
}

func (r *record) note(revision int64, k known) {
	r.answers++
	r.revision, r.known = revision, k
}

// noteHold notes a hold that an answer told of. It reports false if the record has ended,
// or its keys are being deleted.
func (rs *records) noteHold(r *record, since int, h *entry, revision int64, l *lease, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.ending || rs.m[r.req.ID] != r {
		return false
	}
	deadline := time.Now().Add(ttl)
	if r.state == holding && r.deadline.After(deadline) {
		deadline = r.deadline
	}
	if !r.stale(since, revision) {
		r.note(revision, known{state: holding, create: h.create, token: h.token, place: h.place, lease: l})
	}
	if r.state == holding {
		r.deadline = deadline
	}
	return true
}

// noteLease notes the lease that a hold was moved to.
func (rs *records) noteLease(r *record, since int, h *entry, l *lease, ttl time.Duration) bool {
	return rs.noteHold(r, since, h, h.mod, l, ttl) && rs.noteRenewed(r, ttl)
}

// noteRenewed moves the deadline of a hold. It reports false if its time was up.
func (rs *records) noteRenewed(r *record, ttl time.Duration) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	if r.ending || !now.Before(r.deadline) || rs.m[r.req.ID] != r {
		return false
	}
	r.deadline = now.Add(ttl)
	return true
}

// notePlace notes a place that an answer told of. It reports false if the record has
// ended, or its keys are being deleted.
func (rs *records) notePlace(r *record, since int, w *entry, revision int64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.ending || rs.m[r.req.ID] != r {
		return false
	}
	if !r.stale(since, revision) {
		r.note(revision, known{state: waiting, create: w.create})
		r.deadline = time.Now().Add(r.req.WaitTTL)
	}
	return true
}

// room returns the lease in which the record's hold, or place, is counted; nil if there is
// none or it is of another kind by now.
func (rs *records) room(r *record, kind leaseKind) *lease {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := r.holdRoom
	if kind.places {
		l = r.placeRoom
	}
	if l == nil || l.kind != kind || l.dead() {
		return nil
	}
	return l
}

// setRoom notes the lease in which the record's hold, or place, is counted.
func (rs *records) setRoom(r *record, l *lease) {
	rs.mu.Lock()
	old := &r.holdRoom
	if l.kind.places {
		old = &r.placeRoom
	}
	gone := *old
	if *old = l; rs.m[r.req.ID] != r {
		gone, *old = l, nil
	}
	rs.mu.Unlock()
	rs.s.leases.leave(gone)
}

// leaseFor returns a lease for a key of the record, which lives at least for atLeast.
func (s *Store) leaseFor(ctx context.Context, r *record, kind leaseKind, atLeast time.Duration) (*lease, error) {
	if l := s.records.room(r, kind); l != nil {
		if err := s.renewLease(ctx, l, atLeast); err == nil || !isLeaseGone(err) {
			return l, err
		}
	}
	l, err := s.leases.take(ctx, kind, atLeast)
	if err != nil {
		return nil, err
	}
	s.records.setRoom(r, l)
	return l, nil
}

// renew returns the record of an id whose former one has ended or is about to: the one
// that another call has made meanwhile, or a new one.
func (rs *records) renew(old *record) (r *record, fresh bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r = rs.m[old.req.ID]; r != nil && r != old {
		return r, false
	}
	r = &record{req: old.req, keys: old.keys, deadline: time.Now().Add(max(old.req.TTL, old.req.WaitTTL))}
	r.holdRoom, r.placeRoom, old.holdRoom, old.placeRoom = old.holdRoom, old.placeRoom, nil, nil
	rs.m[old.req.ID] = r
	if !rs.on {
		rs.on = rs.s.tasks.Go(rs.sweep)
	}
	return r, true
}
