package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Renew implements [store.Store]. For all holds that hang on one lease it takes
// two round trips: the lease is renewed, and the server asked whether their keys
// still hang on it, in transactions of 128 at once, since a key may have been deleted
// while its lease lives. A hold that hangs on another lease than its TTL asks for,
// as a promoted one does, is moved first, and not asked about. It blocks until all
// are answered or ctx ends.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	if err := s.ready(ctx); err != nil {
		for i := range results {
			results[i] = err
		}
		return results
	}
	r := &renewal{s: s, ctx: ctx, holds: holds, results: results, moved: make([]bool, len(holds)), on: make(map[*lease][]int)}
	var moving sync.WaitGroup
	for i, ref := range holds {
		c := s.claims.find(ref.ID)
		if c == nil {
			moving.Go(func() { r.move(i) })
			continue
		}
		l, _, _, over := s.claims.known(c)
		switch {
		case over:
			results[i] = store.ErrLost
		case l == nil || l.seconds != seconds(ref.TTL):
			moving.Go(func() { r.move(i) })
		default:
			r.put(l, i)
		}
	}
	moving.Wait()
	var renewing sync.WaitGroup
	for l, index := range r.on {
		renewing.Go(func() { r.lease(l, index) })
	}
	renewing.Wait()
	return results
}

// renewal is one call of Renew.
type renewal struct {
	s       *Store
	ctx     context.Context
	holds   []store.Ref
	results []error // each written by one goroutine
	moved   []bool  // likewise: the hold was there when it was moved

	mu sync.Mutex
	on map[*lease][]int // which holds hang on a lease
}

func (r *renewal) put(l *lease, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on[l] = append(r.on[l], i)
}

// move reads a hold and hangs it on the lease for its TTL.
func (r *renewal) move(i int) {
	l, err := r.s.adopt(r.ctx, r.holds[i])
	if err != nil {
		r.results[i] = err
		return
	}
	r.moved[i] = true
	r.put(l, i)
}

// adopt makes a hold one of this handle's, on a lease of this handle.
func (s *Store) adopt(ctx context.Context, ref store.Ref) (*lease, error) {
	dir := s.keys.dir(ref.Name)
	c := s.claims.find(ref.ID)
	e := s.claims.entry(c)
	if e == nil {
		var err error
		if e, err = s.promoted(ctx, dir, ref.ID); err != nil {
			return nil, err
		}
	}
	var l *lease
	var err error
	if c != nil && c.req.Fixed {
		if l, err = s.grantLease(ctx, seconds(ref.TTL)); err == nil {
			l.own = true
		}
	} else {
		l, err = s.leases.get(ctx, holdsFor(ref.TTL), ref.TTL*2/3)
	}
	if err != nil {
		return nil, s.outcome(err)
	}
	for {
		next, err := s.rehang(ctx, dir, e, l)
		if err != nil {
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				s.leases.dropHolds(l)
			}
			return nil, s.outcome(err)
		}
		if next == nil {
			break
		}
		if e = find(next.holds, ref.ID); e == nil {
			return nil, store.ErrLost
		}
	}
	if c == nil { // else its end is that of the hold, also if it is forgotten by now
		c, _ = s.claims.track(e.request(ref), dir, e.key)
	}
	if !s.claims.held(c, l, e.mod, e.token, ref.TTL) {
		return nil, store.ErrLost
	}
	return l, nil
}

// promoted reads and settles a name and returns the hold that a waiter has become.
func (s *Store) promoted(ctx context.Context, dir, id string) (*entry, error) {
	answer, err := s.client.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, s.outcome(err)
	}
	v, err := parseView(dir, answer.Header.Revision, answer.Kvs)
	if err != nil {
		return nil, err
	}
	if v, err = s.settled(ctx, dir, v); err != nil {
		return nil, s.outcome(err)
	}
	if h := find(v.holds, id); h != nil {
		return h, nil
	}
	return nil, store.ErrLost
}

// lease renews one lease and the holds that hang on it.
func (r *renewal) lease(l *lease, index []int) {
	switch err := r.s.keepAlive(r.ctx, l); {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		r.s.leases.dropHolds(l)
		r.fail(index, store.ErrLost)
		return
	case err != nil:
		r.fail(index, r.s.outcome(err))
		return
	}
	index = slices.DeleteFunc(index, func(i int) bool {
		if r.moved[i] {
			r.confirmed(i)
		}
		return r.moved[i]
	})
	var asking sync.WaitGroup
	for some := range slices.Chunk(index, maxTxnOps) {
		asking.Go(func() { r.attached(l, some) })
	}
	asking.Wait()
}

// maxTxnOps is how many conditions a server takes in one transaction by default. One
// that was started with a smaller --max-txn-ops is asked for less at once.
const maxTxnOps = 128

// attached says what has become of holds after their lease was renewed: in one
// transaction, whose answer names keys only if some do not hang on it any more.
func (r *renewal) attached(l *lease, index []int) {
	conditions, looks := make([]clientv3.Cmp, len(index)), make([]clientv3.Op, len(index))
	for k, i := range index {
		key := r.key(i)
		conditions[k] = clientv3.Compare(clientv3.LeaseValue(key), "=", l.id)
		looks[k] = clientv3.OpGet(key, clientv3.WithKeysOnly())
	}
	answer, err := r.s.client.Txn(r.ctx).If(conditions...).Else(looks...).Commit()
	switch half := len(index) / 2; {
	case half > 0 && errors.Is(err, rpctypes.ErrTooManyOps):
		r.attached(l, index[:half])
		r.attached(l, index[half:])
		return
	case err != nil:
		r.fail(index, r.s.outcome(err))
		return
	}
	for k, i := range index {
		if !answer.Succeeded {
			kvs := answer.Responses[k].GetResponseRange().Kvs
			if len(kvs) == 0 || clientv3.LeaseID(kvs[0].Lease) != l.id {
				r.results[i] = store.ErrLost
				continue
			}
		}
		r.confirmed(i)
	}
}

// confirmed: the hold is there, and lives for its TTL from now on if this handle did
// not end it before.
func (r *renewal) confirmed(i int) {
	c := r.s.claims.find(r.holds[i].ID)
	if c == nil || !r.s.claims.renewed(c, r.holds[i].TTL) {
		r.results[i] = store.ErrLost
	}
}

func (r *renewal) fail(index []int, err error) {
	for _, i := range index {
		r.results[i] = err
	}
}

func (r *renewal) key(i int) string { return r.s.keys.entry(r.holds[i].Name, r.holds[i].ID) }
