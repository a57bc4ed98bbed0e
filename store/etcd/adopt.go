package etcd

import (
	"context"

	"github.com/dlock-go/dlock/store"
)

// adopt makes a hold one of this handle's, on a lease for its TTL. What is known of it is k, if there is a
// record of it.
func (s *Store) adopt(ctx context.Context, ref store.Ref, r *record, k known) error {
	h, err := s.holdOf(ctx, ref, r, k)
	if err != nil {
		return err
	}
	fresh := false
	if r == nil { // else its end is that of the record, also if that is forgotten by now
		r, fresh = s.records.track(store.Request{
			Name: ref.Name, Owner: ref.Owner, ID: ref.ID, Mode: ref.Mode, TTL: ref.TTL,
			WaitTTL: h.wait, Tokens: h.tokens, Label: h.label,
		}, h.idKeys)
		k = s.records.reads(r)
	}
	l, err := s.records.leaseFor(ctx, r, holdsFor(ref.TTL), ref.TTL)
	for err == nil && h != nil && h.lease != l.id {
		var next *view
		if next, err = s.rehang(ctx, h, l.id); next != nil {
			h = find(next.holds, ref.ID)
		}
	}
	switch {
	case isLeaseGone(err):
		s.leases.check(ctx, l)
		return err
	case err != nil:
		return err
	case h == nil && fresh:
		s.records.forget(r)
		return store.ErrLost
	case h == nil || !s.records.noteHold(r, k, h, h.mod, l, ref.TTL) || !s.records.noteRenewed(r, ref.TTL):
		return store.ErrLost
	}
	return nil
}

// holdOf is a hold as the handle knows it, or else as it is at the server, where a waiter may be due to become
// one.
func (s *Store) holdOf(ctx context.Context, ref store.Ref, r *record, k known) (*entry, error) {
	keys := s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode)
	if k.state == holding {
		return r.hold(k), nil
	}
	v, err := s.look(ctx, keys.dir)
	if err != nil {
		return nil, err
	}
	h := find(v.holds, ref.ID)
	if w := find(v.queue, ref.ID); w != nil {
		h, _, _, err = s.advance(ctx, v, w, w.lease)
	}
	if h == nil && err == nil {
		err = store.ErrLost
	}
	return h, err
}
