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

// ask is one call of Acquire.
type ask struct {
	s     *Store
	req   store.Request
	keys  idKeys
	began time.Time
	r     *record
	fresh bool   // the handle had no record of the id before
	since int    // how many answers the record had when the call began
	lease *lease // for the hold
	seen  bool   // the call has found a hold or a place of the id, or may have made one
}

// Acquire implements [store.Store]. On a free name it takes one round trip, as does one
// that is refused, and a repeated one that waits. The first to wait for a name takes up
// to three. One more is for a lease, at the first request of a TTL and for each 256th
// hold. It blocks until answered or ctx ends.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	if req.Tokens > maxTokens {
		return store.Grant{}, fmt.Errorf("etcd: %w: %d tokens at once, of %d that are possible", store.ErrRefused, req.Tokens, maxTokens)
	}
	a := &ask{s: s, req: req, keys: s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode), began: time.Now()}
	a.r, a.fresh = s.records.track(req, a.keys)
	g, err := a.run(ctx)
	if out := s.outcome(err); errors.Is(out, store.ErrRefused) || errors.Is(out, store.ErrForeignKey) {
		err = a.undo(ctx, err)
	}
	return g, s.outcome(err)
}

func (a *ask) run(ctx context.Context) (store.Grant, error) {
	s := a.s
	k, since := s.records.reads(a.r)
	a.since = since
	var v *view
	var err error
	if k.state != waiting {
		s.releases.wait(ctx, a.keys.dir)
		if a.lease, err = s.leaseFor(ctx, a.r, holdsFor(a.req.TTL), a.atLeast()); err != nil {
			if a.fresh {
				s.records.forget(a.r) // nothing was sent
			}
			return store.Grant{}, err
		}
		e := newEntry(a.keys, a.req)
		var revision int64
		a.seen = true
		if revision, v, err = s.try(ctx, a.keys.dir, a.keys.enter(e, a.lease.id, a.otherwise(e))); revision > 0 {
			return a.held(e.becomes(revision, 0, a.lease.id), revision, 1)
		}
	} else if v, err = s.look(ctx, a.keys.dir); err == nil {
		a.lease, err = s.leaseFor(ctx, a.r, holdsFor(a.req.TTL), 0)
	}
	there := false
	for err == nil {
		var g store.Grant
		var done bool
		there = there || find(v.queue, a.req.ID) != nil || find(v.holds, a.req.ID) != nil
		if g, v, done, err = a.step(ctx, v); done {
			return g, err
		}
	}
	if isLeaseGone(err) { // the error does not say which it was
		s.leases.drop(a.lease)
		s.leases.drop(s.records.room(a.r, placesFor(a.req.WaitTTL)))
	}
	if there && errors.Is(s.outcome(err), store.ErrRefused) {
		err = fmt.Errorf("refused after the call had changed something: %v", err)
	}
	return store.Grant{}, err
}

// atLeast is how long the lease of a new hold has to live.
func (a *ask) atLeast() time.Duration {
	if a.req.Fixed { // nothing renews it
		return a.req.TTL
	}
	return a.req.TTL * 2 / 3
}

// otherwise is what happens if the name is not free: a look, or a place at once where
// requests of this handle wait or did so lately.
func (a *ask) otherwise(e *entry) clientv3.Op {
	s := a.s
	if !a.req.Queue || !s.watches.has(a.keys.dir) {
		return a.keys.look()
	}
	l := s.records.room(a.r, placesFor(a.req.WaitTTL))
	if l == nil {
		if l = s.leases.room(placesFor(a.req.WaitTTL)); l == nil {
			return a.keys.look()
		}
		s.records.setRoom(a.r, l)
	}
	// Not where the owner holds: a re-entry or an upgrade never takes a place.
	return clientv3.OpTxn([]clientv3.Cmp{a.keys.noOwn(kindRead), a.keys.noOwn(kindWrite)},
		[]clientv3.Op{a.keys.take(e, l.id)}, []clientv3.Op{a.keys.look()})
}

// undo sees to it that a refused ask has left nothing: not a place that it took before it
// met a foreign key, and not what etcd has written and says that it has no space
// for. What the id had before is its caller's to release.
func (a *ask) undo(ctx context.Context, refusal error) error {
	s := a.s
	if !a.fresh {
		return refusal
	}
	s.watches.leave(a.r)
	if a.seen && (errors.Is(refusal, rpctypes.ErrNoSpace) || errors.Is(refusal, store.ErrForeignKey)) {
		if err := s.records.endNow(ctx, a.r); err != nil {
			return fmt.Errorf("%v, and what it may have left is not deleted yet: %v", refusal, err)
		}
	}
	s.records.forget(a.r)
	return refusal
}

// step decides on what v says: done with an answer, or the next view.
func (a *ask) step(ctx context.Context, v *view) (g store.Grant, next *view, done bool, err error) {
	s, id, tag := a.s, a.req.ID, a.keys.tag
	if v.buried[id] {
		a.forget()
		return g, nil, true, store.ErrLost
	}
	e := newEntry(a.keys, a.req)
	h, d, v, err := s.advance(ctx, v, e, a.lease.id)
	switch {
	case err != nil:
		return g, nil, false, err
	case h != nil:
		if h.mod > v.rev { // granted just now
			err = s.renewLease(ctx, a.lease, a.atLeast())
		} else {
			next, err = a.extend(ctx, h)
		}
		if err != nil || next != nil {
			return g, next, false, err
		}
		g, err = a.held(h, max(v.rev, h.mod), v.count(tag))
		return g, nil, true, err
	case v.buried[id]:
		return g, v, false, nil
	}
	w := find(v.queue, id)
	switch {
	case d.upgrade:
		if w != nil {
			if next, err := a.giveUp(ctx, w); err != nil || next != nil {
				return g, next, false, err
			}
		}
		a.forget()
		return store.Grant{HeldBy: v.heldBy(tag)}, nil, true, store.ErrUpgrade
	case !a.req.Queue:
		if w == nil {
			a.forget()
		}
		return store.Grant{Retry: v.retry(tag, v.position(id)), HeldBy: v.heldBy(tag)}, nil, true, store.ErrHeld
	case w == nil:
		l, err := a.placeLease(ctx)
		if err != nil {
			return g, nil, false, err
		}
		_, next, err := s.try(ctx, a.keys.dir, a.keys.take(e, l.id))
		return g, next, false, err
	}
	return a.wait(ctx, v, w)
}

// forget ends the record of an id that has no key.
func (a *ask) forget() {
	a.s.watches.leave(a.r)
	a.s.records.forget(a.r)
}

// extend hangs a hold that is there already on the lease for its TTL, unless it
// hangs on one that lives longer.
func (a *ask) extend(ctx context.Context, h *entry) (*view, error) {
	s := a.s
	if h.lease == a.lease.id {
		return nil, s.renewLease(ctx, a.lease, a.req.TTL)
	}
	if l := s.leases.have(h.lease); l != nil && l.kind.seconds >= a.lease.kind.seconds {
		a.lease = l
		return nil, s.renewLease(ctx, l, a.req.TTL)
	}
	answer, err := s.client.TimeToLive(ctx, h.lease)
	if err != nil {
		return nil, err
	}
	if left := time.Duration(answer.TTL) * time.Second; left > a.req.TTL {
		a.lease = &lease{id: h.lease, foreign: true, until: a.began.Add(left)}
		return nil, nil
	}
	return s.rehang(ctx, h, a.lease.id)
}

// giveUp deletes a place. If it is not what it was, there may be a hold by now, and the
// next view is returned.
func (a *ask) giveUp(ctx context.Context, w *entry) (*view, error) {
	_, next, err := a.s.try(ctx, a.keys.dir, clientv3.OpTxn([]clientv3.Cmp{still(w.key, w.create)},
		[]clientv3.Op{clientv3.OpDelete(w.key)}, []clientv3.Op{a.keys.look()}))
	return next, err
}

// placeLease is a lease for the place that lives for WaitTTL after this call began.
func (a *ask) placeLease(ctx context.Context) (*lease, error) {
	return a.s.leaseFor(ctx, a.r, placesFor(a.req.WaitTTL), time.Until(a.began.Add(a.req.WaitTTL)))
}

// wait keeps a place whose way is not free.
func (a *ask) wait(ctx context.Context, v *view, w *entry) (store.Grant, *view, bool, error) {
	s := a.s
	l, err := a.placeLease(ctx)
	if err != nil {
		return store.Grant{}, nil, false, err
	}
	noted := s.records.notePlace(a.r, a.since, w, v.rev)
	if !noted {
		// The time of the place was up before this answer came. If its key is written
		// again, it is not the one that is being deleted.
		a.r, _ = s.records.renew(a.r)
		if l, err = a.placeLease(ctx); err != nil {
			return store.Grant{}, nil, false, err
		}
	}
	if !noted || w.lease != l.id {
		if next, err := s.rehang(ctx, w, l.id); err != nil || next != nil {
			return store.Grant{}, next, false, err
		}
		s.records.notePlace(a.r, a.since, w, v.rev)
	}
	s.watches.enter(a.r, w, v)
	position := v.position(w.id)
	return store.Grant{
		Token: tokenAt(v.rev) | (maxTokens - 1), Position: position,
		Retry: v.retry(a.keys.tag, position), HeldBy: v.heldBy(a.keys.tag),
	}, nil, true, nil
}

// held answers with a hold that was there at a revision.
func (a *ask) held(h *entry, revision int64, holds int) (store.Grant, error) {
	s := a.s
	l := a.lease
	if l.foreign {
		l = nil
	}
	if !s.records.noteHold(a.r, a.since, h, revision, l, a.req.TTL) {
		s.watches.leave(a.r)
		// The time of the id was up before this answer came. A new record ends the hold
		// if nobody asks again.
		var fresh bool
		if a.r, fresh = s.records.renew(a.r); fresh && l != nil {
			s.records.noteHold(a.r, 0, h, revision, l, a.req.TTL)
		}
		if time.Since(a.began) >= a.req.TTL { // with this answer the hold itself is over
			if fresh { // else it is that of another call
				s.records.expire(a.r)
			}
			return store.Grant{}, store.ErrLost
		}
		return store.Grant{}, errors.New("the time of its place was up before this answer came")
	}
	s.watches.granted(a.r, h.create)
	return store.Grant{Held: true, Token: h.token, TTL: min(a.req.TTL, a.lease.remains(a.began)), Holds: holds}, nil
}

// rehang puts a hold or a place on another lease. It returns the next view if the key is
// not as it was read.
func (s *Store) rehang(ctx context.Context, e *entry, lease clientv3.LeaseID) (*view, error) {
	if err := e.decode(); err != nil {
		return nil, err
	}
	text := e.asWaiter()
	if e.held {
		text = e.asHold(e.token)
	}
	revision, next, err := s.try(ctx, e.keys.dir, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", e.mod)},
		[]clientv3.Op{clientv3.OpPut(e.key, text, clientv3.WithLease(lease))}, []clientv3.Op{e.keys.look()}))
	if revision > 0 {
		e.mod, e.lease = revision, lease
	}
	return next, err
}
