package etcd

import (
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
	results := make([]error, len(holds))
	on := make(map[*lease][]renewal)
	var work sync.WaitGroup
	for i, ref := range holds {
		r, k := s.records.find(ref.ID)
		one := renewal{s, ref, &results[i], r, k}
		switch {
		case k.over:
			results[i] = store.ErrLost
		case k.state != holding || k.lease.kind.seconds != seconds(ref.TTL):
			work.Go(func() { one.adopt(ctx) })
		default:
			on[k.lease] = append(on[k.lease], one)
		}
	}
	for l, some := range on {
		work.Go(func() { s.renewLease(ctx, l, some) })
	}
	work.Wait()
	return results
}

// renewal is that of one hold, and what was known of it when it began.
type renewal struct {
	s      *Store
	ref    store.Ref
	result *error
	r      *record
	known
}

// renewLease renews one lease and the holds that hang on it.
func (s *Store) renewLease(ctx context.Context, l *lease, holds []renewal) {
	var longest time.Duration // they are the same up to a second
	for _, h := range holds {
		longest = max(longest, h.ref.TTL)
	}
	err := s.leases.renew(ctx, l, longest)
	if isLeaseGone(err) {
		err = store.ErrLost
	}
	if err != nil {
		for _, h := range holds {
			*h.result = s.outcome(err)
		}
		return
	}
	var asking sync.WaitGroup
	for some := range slices.Chunk(holds, maxTxnOps) {
		asking.Go(func() { s.confirm(ctx, l, some) })
	}
	asking.Wait()
}

// maxTxnOps is how many conditions a server takes in one transaction by default. One that was started with a
// smaller --max-txn-ops is asked for less at once.
const maxTxnOps = 128

// confirm asks whether holds hang on their lease still, after that was renewed. If not all do, it asks for each half.
func (s *Store) confirm(ctx context.Context, l *lease, holds []renewal) {
	conditions := make([]clientv3.Cmp, len(holds))
	for i, h := range holds {
		conditions[i] = h.r.hold(h.known).on(l.id)
	}
	// A transaction that does nothing at all is judged by a member that may lag behind.
	answer, err := s.client.Txn(ctx).If(conditions...).Else(clientv3.OpGet(holds[0].key)).Commit()
	half := len(holds) / 2
	switch {
	case half > 0 && (err == nil && !answer.Succeeded || errors.Is(err, rpctypes.ErrTooManyOps)):
		s.confirm(ctx, l, holds[:half])
		s.confirm(ctx, l, holds[half:])
		return
	case err == nil && !answer.Succeeded: // it is gone, or another handle has renewed it
		holds[0].adopt(ctx)
		return
	}
	for _, h := range holds {
		if *h.result = s.outcome(err); err == nil && !s.records.renewed(h.r, h.ref.TTL) {
			*h.result = store.ErrLost
		}
	}
}

// adopt renews a hold that hangs on another lease, or of which the handle does not know: it looks, and moves the hold.
// A waiter may be due to become one.
func (h renewal) adopt(ctx context.Context) {
	s, ref := h.s, h.ref
	k := s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode)
	req := store.Request{Name: ref.Name, Owner: ref.Owner, ID: ref.ID, Mode: ref.Mode, TTL: ref.TTL, WaitTTL: ref.TTL}
	a := &ask{s: s, idKeys: k, req: req, r: h.r, kind: holdsFor(ref.TTL), renews: true, exact: true}
	a.lasts, a.atLeast = ref.TTL, ref.TTL
	if a.r == nil { // else its end is that of the record, also if that is forgotten by now
		a.r, a.fresh = s.records.track(req, k)
	}
	err := errOvertaken
	for err == errOvertaken {
		a.began = time.Now()
		if a.since = s.records.read(a.r); a.since.over {
			err = store.ErrLost
			break
		}
		var v *view
		var hold *entry
		if v, err = s.look(ctx, k.dir); err == nil {
			hold, _, err = a.run(ctx, &entry{idKeys: k, create: 1}, nil, v)
		}
		if err == nil && (hold == nil || !s.records.renewed(a.r, ref.TTL)) {
			err = store.ErrLost
		}
		if err == store.ErrLost && hold == nil && a.fresh {
			s.forget(a.r)
		}
	}
	a.checkLeases(ctx, err)
	*h.result = s.outcome(err)
}
