package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// errEnded: the time of the id was up before an answer came. The call begins from the start.
var errEnded = errors.New("etcd: the time of this id was up")

// ask is one call of Acquire.
type ask struct {
	s *Store
	idKeys
	req   store.Request
	began time.Time
	r     *record
	fresh bool   // the handle had no record of the id before
	since known  // what was known of the id when the call began
	lease *lease // for the hold
	there bool   // a hold or a place of the id has been seen
}

// Acquire implements [store.Store]. On a free name it takes one round trip, as does one that is refused, and a
// repeated one that waits. The first to wait for a name takes up to three. One more is for a lease, at the
// first request of a TTL and for each 256th hold. Requests of one moment share calls. It blocks until answered or ctx
// ends.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	if req.Tokens > maxTokens {
		return store.Grant{}, fmt.Errorf("etcd: %w: %d tokens at once, of %d that are possible", store.ErrRefused, req.Tokens, maxTokens)
	}
	a := &ask{s: s, req: req, idKeys: s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode)}
	g, err := store.Grant{}, errEnded
	for err == errEnded {
		a.began = time.Now()
		if err = a.track(ctx); err == nil {
			g, err = a.run(ctx)
		}
		a.there = a.there || err == errEnded
	}
	if out := s.outcome(err); errors.Is(out, store.ErrRefused) || errors.Is(out, store.ErrForeignKey) {
		err = a.undo(ctx, err)
	}
	return g, s.outcome(err)
}

// track finds the record of the id, or makes one. Keys whose time is up go first, as if they had gone by themselves.
func (a *ask) track(ctx context.Context) error {
	for {
		a.r, a.fresh = a.s.records.track(a.req, a.idKeys)
		if a.since = a.s.records.reads(a.r); !a.since.over {
			return nil
		}
		a.s.records.isOver(a.r, time.Now())
		if err := a.s.records.end(ctx, a.r); err != nil {
			return err
		}
	}
}

func (a *ask) run(ctx context.Context) (g store.Grant, err error) {
	s := a.s
	var v *view
	if a.since.state == waiting {
		if v, err = s.look(ctx, a.dir); err == nil {
			a.lease, err = s.records.leaseFor(ctx, a.r, holdsFor(a.req.TTL), a.soon(v))
		}
	} else {
		s.releases.wait(ctx, a.dir)
		if a.lease, err = s.records.leaseFor(ctx, a.r, holdsFor(a.req.TTL), a.atLeast()); err != nil {
			if a.fresh {
				s.records.forget(a.r)
			}
			return g, err
		}
		e := newEntry(a.idKeys, a.req)
		var revision int64
		if revision, v, err = s.try(ctx, a.dir, a.enter(e, a.lease.id, a.otherwise(e))); revision > 0 {
			return a.held(ctx, e.becomes(e.first(), revision, 0, a.lease.id), revision, 1)
		}
	}
	for done := false; err == nil; {
		a.there = a.there || find(v.queue, a.req.ID) != nil || find(v.holds, a.req.ID) != nil
		if g, v, done, err = a.step(ctx, v); done {
			return g, err
		}
	}
	if isLeaseGone(err) { // the error does not say which it was
		s.leases.check(ctx, s.records.roomsOf(a.r)...)
	}
	if out := s.outcome(err); a.there && (errors.Is(out, store.ErrRefused) || errors.Is(out, store.ErrClosed)) {
		err = fmt.Errorf("refused after the call had changed something: %v", err)
	}
	return store.Grant{}, err
}

// soon is how long the lease for the hold of a waiter has to live as of a view: it matters only if the hold is made now.
func (a *ask) soon(v *view) time.Duration {
	if w := find(v.queue, a.req.ID); w != nil {
		if d := v.judge(w); !d.granted && d.before == nil {
			return 0
		}
	}
	return a.atLeast()
}

// atLeast is how long the lease of a new hold has to live.
func (a *ask) atLeast() time.Duration {
	if a.req.Fixed { // nothing renews it
		return a.req.TTL
	}
	return a.req.TTL * 2 / 3
}

// otherwise is what happens if the name is not free: a look, or a place at once where requests of this handle
// wait or did so lately.
func (a *ask) otherwise(e *entry) clientv3.Op {
	s := a.s
	if !a.req.Queue || !s.watches.has(a.dir) {
		return a.look()
	}
	l := s.records.roomOf(a.r, placesFor(a.req.WaitTTL))
	if l == nil {
		if l = s.leases.room(placesFor(a.req.WaitTTL)); l == nil {
			return a.look()
		}
		s.records.addRoom(a.r, l, nil)
	}
	if s.leases.remains(l, a.began) < a.req.WaitTTL { // the place could end before the lease is renewed
		return a.look()
	}
	return a.take(e, l.id)
}

// undo sees to it that a refused ask has left nothing: not a place that it took before it met a foreign key,
// and not what etcd has written and says that it has no space for. What the id had before is its caller's to
// release.
func (a *ask) undo(ctx context.Context, refusal error) error {
	if !a.fresh {
		return refusal
	}
	if errors.Is(refusal, rpctypes.ErrNoSpace) || errors.Is(refusal, store.ErrForeignKey) {
		a.s.records.isOver(a.r, time.Time{})
		if err := a.s.records.end(ctx, a.r); err != nil {
			return fmt.Errorf("%v, and what it may have left is not deleted yet: %v", refusal, err)
		}
	}
	a.forget()
	return refusal
}

// forget ends the record of an id that has no key.
func (a *ask) forget() {
	a.s.watches.leave(a.r)
	a.s.records.forget(a.r)
}

// step decides on what v says: done with an answer, or the next view.
func (a *ask) step(ctx context.Context, v *view) (g store.Grant, next *view, done bool, err error) {
	s := a.s
	e := newEntry(a.idKeys, a.req)
	h, d, v, err := s.advance(ctx, v, e, a.lease.id)
	if err != nil {
		return g, nil, false, err
	}
	w := find(v.queue, a.req.ID)
	switch g = v.answer(e); {
	case v.buried[a.req.ID]:
		a.forget()
		return g, nil, true, store.ErrLost
	case h != nil:
		if next, err = a.extend(ctx, h, v); err != nil || next != nil {
			return g, next, false, err
		}
		holds := 0
		for _, other := range v.holds {
			if other.tag == a.tag {
				holds++
			}
		}
		g, err = a.held(ctx, h, max(v.rev, h.mod), holds)
		return g, nil, true, err
	case d.upgrade && w != nil: // it gives up its place, unless that is a hold by now
		_, next, err = s.try(ctx, a.dir, clientv3.OpTxn([]clientv3.Cmp{still(w.key, w.create)},
			[]clientv3.Op{clientv3.OpDelete(w.key)}, []clientv3.Op{a.look()}))
		if err != nil || next != nil {
			return g, next, false, err
		}
		fallthrough
	case d.upgrade:
		a.forget()
		return store.Grant{HeldBy: g.HeldBy}, nil, true, store.ErrUpgrade
	case !a.req.Queue && w == nil:
		a.forget()
		fallthrough
	case !a.req.Queue:
		g.Position = 0
		return g, nil, true, store.ErrHeld
	case w == nil:
		var l *lease
		if l, err = a.placeLease(ctx); err == nil {
			_, next, err = s.try(ctx, a.dir, a.take(e, l.id))
		}
		return g, next, false, err
	}
	// What a waiter is told is as the model has it: with the holds that are due.
	if due, _ := v.settled(); len(due) > 0 {
		next, err = s.promote(ctx, v, due[0])
		return g, next, false, err
	}
	g.Token = tokenAt(v.rev) | (maxTokens - 1)
	next, err = a.wait(ctx, v, w)
	return g, next, err == nil && next == nil, err
}

// extend sees to it that a hold lasts for its TTL: on the lease for that, unless it hangs on one of the handle that
// lives longer. A lease of another handle does not count, because that handle deletes the hold when its time is up.
func (a *ask) extend(ctx context.Context, h *entry, v *view) (*view, error) {
	s := a.s
	if own := s.leases.have(h.lease); own != nil && own.kind.seconds >= a.lease.kind.seconds && h.mod <= v.rev {
		a.lease = own
		return nil, s.leases.renew(ctx, own, a.req.TTL)
	}
	// First: the hold could end in between.
	if err := s.leases.renew(ctx, a.lease, a.atLeast()); err != nil || h.mod > v.rev { // granted just now
		return nil, err
	}
	return s.rehang(ctx, h, a.lease.id)
}

// placeLease is a lease for the place that lives for WaitTTL after this call began.
func (a *ask) placeLease(ctx context.Context) (*lease, error) {
	return a.s.records.leaseFor(ctx, a.r, placesFor(a.req.WaitTTL), time.Until(a.began.Add(a.req.WaitTTL)))
}

// wait keeps a place whose way is not free.
func (a *ask) wait(ctx context.Context, v *view, w *entry) (*view, error) {
	s := a.s
	if !s.records.notePlace(a.r, a.since, w, v.rev) {
		return nil, errEnded
	}
	l, err := a.placeLease(ctx)
	if err != nil {
		return nil, err
	}
	if w.lease != l.id {
		if next, err := s.rehang(ctx, w, l.id); err != nil || next != nil {
			return next, err
		}
	}
	s.watches.enter(a.r, w, v)
	return nil, nil
}

// held answers with a hold that was there at a revision.
func (a *ask) held(ctx context.Context, h *entry, revision int64, holds int) (store.Grant, error) {
	s := a.s
	s.watches.leave(a.r)
	if !s.records.noteHold(a.r, a.since, h, revision, a.lease, a.req.TTL) {
		if time.Since(a.began) < a.req.TTL {
			return store.Grant{}, errEnded
		}
		// With this answer the hold itself is over, and perhaps the deletion has found no key before.
		if a.track(ctx) == nil && a.fresh {
			s.records.expire(a.r)
		}
		return store.Grant{}, store.ErrLost
	}
	lasts := min(a.req.TTL, s.leases.remains(a.lease, a.began))
	return store.Grant{Held: true, Token: h.token, Short: h.short(), TTL: lasts, Holds: holds}, nil
}
