package etcd

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Renew implements [store.Store]. Each lease that holds hang on is renewed, unless it lives long enough, and
// the server asked whether their keys still hang on them, in transactions of 128, since a key may have been
// deleted while its lease lives. A hold that hangs on another lease than its TTL asks for, as a promoted one
// does, is moved first, and not asked about. It blocks until all are answered or ctx ends.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	if err := s.ready(ctx); err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	r := &renewal{s: s, ctx: ctx, holds: holds, results: make([]error, len(holds)), on: make(map[*lease][]renewed)}
	var work sync.WaitGroup
	for i, ref := range holds {
		rec, k := s.records.knows(ref.ID)
		switch {
		case k.over:
			r.results[i] = store.ErrLost
		case k.state != holding || k.lease == nil || k.lease.kind != holdsFor(ref.TTL):
			work.Go(func() { r.results[i] = s.outcome(s.adopt(ctx, ref, rec, k)) })
		default:
			r.on[k.lease] = append(r.on[k.lease], renewed{i, rec, k})
		}
	}
	for l, some := range r.on {
		work.Go(func() { r.lease(l, some) })
	}
	work.Wait()
	return r.results
}

// renewal is one call of Renew.
type renewal struct {
	s       *Store
	ctx     context.Context
	holds   []store.Ref
	results []error // each written by one goroutine
	on      map[*lease][]renewed
}

// renewed is a hold that is renewed by its lease.
type renewed struct {
	i     int
	r     *record
	known known
}

// lease renews one lease and the holds that hang on it.
func (r *renewal) lease(l *lease, holds []renewed) {
	var longest time.Duration // they are the same up to a second
	for _, h := range holds {
		longest = max(longest, r.holds[h.i].TTL)
	}
	err := r.s.leases.renew(r.ctx, l, longest)
	if isLeaseGone(err) {
		err = store.ErrLost
	}
	if err != nil {
		r.fail(holds, r.s.outcome(err))
		return
	}
	var asking sync.WaitGroup
	for some := range slices.Chunk(holds, maxTxnOps) {
		asking.Go(func() { r.attached(l, some) })
	}
	asking.Wait()
}

// maxTxnOps is how many conditions a server takes in one transaction by default. One that was started with a
// smaller --max-txn-ops is asked for less at once.
const maxTxnOps = 128

// attached says what has become of holds after their lease was renewed: in one transaction, and one more that
// reads their keys if some do not hang on it any more.
func (r *renewal) attached(l *lease, holds []renewed) {
	conditions := make([]clientv3.Cmp, len(holds))
	for k, h := range holds {
		conditions[k] = h.r.hold(h.known).on(l.id)
	}
	// A transaction that does nothing at all is judged by a member that may lag behind.
	answer, err := r.s.client.Txn(r.ctx).If(conditions...).Else(clientv3.OpGet(holds[0].known.key)).Commit()
	all := err == nil && answer.Succeeded
	if err == nil && !all {
		looks := make([]clientv3.Op, len(holds))
		for k, h := range holds {
			looks[k] = clientv3.OpGet(h.known.key)
		}
		answer, err = r.s.client.Txn(r.ctx).Then(looks...).Commit()
	}
	switch half := len(holds) / 2; {
	case half > 0 && errors.Is(err, rpctypes.ErrTooManyOps):
		r.attached(l, holds[:half])
		r.attached(l, holds[half:])
		return
	case err != nil:
		r.fail(holds, r.s.outcome(err))
		return
	}
	for k, h := range holds {
		there, ref := all, r.holds[h.i]
		if !there {
			kvs := answer.Responses[k].GetResponseRange().Kvs
			there = len(kvs) > 0 && bytes.HasPrefix(kvs[0].Value, []byte(valueBegins(h.r.tag, h.r.id)))
			if there && clientv3.LeaseID(kvs[0].Lease) != l.id { // another handle has renewed it
				r.results[h.i] = r.s.outcome(r.s.adopt(r.ctx, ref, h.r, h.known))
				continue
			}
		}
		if !there || !r.s.records.noteRenewed(h.r, ref.TTL) {
			r.results[h.i] = store.ErrLost
		}
	}
}

// fail sets the result of some holds.
func (r *renewal) fail(holds []renewed, err error) {
	for _, h := range holds {
		r.results[h.i] = err
	}
}

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
