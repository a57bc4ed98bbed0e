package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/store"
)

// errOvertaken: what an answer says of an id was not noted, for another answer has told otherwise meanwhile, or the
// time of the id was up. The call begins from the start.
var errOvertaken = errors.New("etcd: the answer was overtaken")

// ask is one try to have an id hold its lock: a call of Acquire, the promotion of a waiter, or the renewal of a hold
// that hangs on another lease than its TTL asks for.
type ask struct {
	s *Store
	idKeys
	req   store.Request
	began time.Time
	r     *record
	since known // what was known of the id when the call began

	kind    leaseKind     // of the lease for the hold
	atLeast time.Duration // that this lease lives when the hold is made
	lasts   time.Duration // how long the hold lasts
	renews  bool          // the lease is renewed for that, also when the hold is made
	exact   bool          // the hold hangs on no longer lease
	lease   *lease        // that the hold hangs on in the end

	fresh bool // Acquire: the handle had no record of the id before
	there bool // Acquire: a hold or a place of the id has been seen
}

// run makes the holds that are due by a view as far as e's, if that has no hold yet, and notes it. It returns the hold
// and the view by which it is granted; or only the view if it is not due.
func (a *ask) run(ctx context.Context, e, h *entry, v *view) (*entry, *view, error) {
	for {
		var err error
		if h == nil {
			h, v, err = a.s.settle(ctx, v, e, a.leaseForHold)
		}
		if err == nil && h == nil {
			return nil, v, nil
		}
		var now *view
		if err == nil {
			now, err = a.keep(ctx, h)
		}
		if err != nil || now == nil {
			return h, v, err
		}
		h, v = nil, now
	}
}

// checkLeases sees which lease is gone, which the error does not say.
func (a *ask) checkLeases(ctx context.Context, err error) {
	if isLeaseGone(err) {
		a.s.leases.check(ctx, a.s.records.roomsOf(a.r))
	}
}

// leaseForHold is one for the hold.
func (a *ask) leaseForHold(ctx context.Context) (l *lease, err error) {
	a.lease, err = a.s.records.leaseFor(ctx, a.r, a.kind, a.atLeast)
	return a.lease, err
}

// keep sees to it that a hold lasts, and notes it. It returns the next view if the hold is not as it was read. The hold
// hangs on a lease for its TTL, or on one of the handle that lives longer, but not after a renewal, which sets the time
// that it outlives its process. A lease of another handle does not count, because that handle deletes the hold when its
// time is up. It moves only to a lease for all of the time: a late answer may have told of a hold that lasts.
func (a *ask) keep(ctx context.Context, h *entry) (now *view, err error) {
	s := a.s
	l := a.lease
	if l == nil || l.id != h.lease {
		l = s.leases.have(h.lease)
	}
	if l != nil && (l.kind.seconds == a.kind.seconds || l.kind.seconds > a.kind.seconds && !a.exact) {
		if a.lease = l; a.renews || !h.made {
			err = s.leases.renew(ctx, l, a.lasts)
		}
	} else if a.lease, err = s.records.leaseFor(ctx, a.r, a.kind, a.lasts); err == nil { // before the hold could end
		now, err = s.rehang(ctx, h, a.lease)
	}
	switch {
	case err != nil || now != nil || s.records.note(a.r, a.since, h, a.lease, a.lasts):
		return now, err
	case time.Since(a.began) < a.lasts:
		return nil, errOvertaken
	}
	// With this answer the hold itself is over, and perhaps the deletion has found no key before.
	if r, fresh := s.records.track(a.req, a.idKeys); fresh {
		s.records.expire(r, time.Time{})
	}
	return nil, store.ErrLost
}
