package etcd

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/store"
)

// adopt makes a hold one of this handle's, on a lease for its TTL.
func (s *Store) adopt(ctx context.Context, ref store.Ref, r *record, k known) error {
	keys := s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode)
	h, err := s.holdOf(ctx, keys, ref, r, k)
	if err != nil {
		return err
	}
	ends := time.Time{}
	if r == nil { // else its end is that of the record, also if that is forgotten by now
		r, _ = s.records.track(h.request(ref.Name, ref.Owner), keys)
		ends = time.Now()
	}
	_, since := s.records.reads(r)
	l, err := s.leaseFor(ctx, r, holdsFor(ref.TTL), ref.TTL)
	if err == nil {
		h, err = s.move(ctx, h, l)
	}
	if err != nil {
		if isLeaseGone(err) {
			s.leases.drop(l)
		}
		if !ends.IsZero() && isSentinel(err) {
			s.records.forget(r)
		}
		return err
	}
	if !s.records.noteLease(r, since, h, l, ref.TTL) {
		return store.ErrLost
	}
	return nil
}

// move puts a hold on a lease, and returns it as it is then.
func (s *Store) move(ctx context.Context, h *entry, l *lease) (*entry, error) {
	for h.lease != l.id {
		next, err := s.rehang(ctx, h, l.id)
		if err != nil || next == nil {
			return h, err
		}
		if h = find(next.holds, h.id); h == nil {
			return nil, store.ErrLost
		}
	}
	return h, nil
}

// holdOf is a hold as the handle knows it, or else as it is at the server, where a waiter
// may be due to become one.
func (s *Store) holdOf(ctx context.Context, keys idKeys, ref store.Ref, r *record, k known) (*entry, error) {
	if k.state == holding {
		h := newEntry(keys, r.req)
		h.key, h.held, h.create, h.mod, h.token, h.place = keys.hold, true, k.create, k.create, k.token, k.place
		return h, nil
	}
	v, err := s.look(ctx, keys.dir)
	if err != nil {
		return nil, err
	}
	if w := find(v.queue, ref.ID); w != nil {
		h, _, _, err := s.advance(ctx, v, w, w.lease)
		if h == nil && err == nil {
			err = store.ErrLost
		}
		return h, err
	}
	if h := find(v.holds, ref.ID); h != nil {
		return h, nil
	}
	return nil, store.ErrLost
}
