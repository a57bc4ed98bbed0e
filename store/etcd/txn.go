package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// viewOf reads the range in a transaction's answer.
func viewOf(dir string, answer *clientv3.TxnResponse) (*view, error) {
	last := answer.Responses[len(answer.Responses)-1]
	for inner := last.GetResponseTxn(); inner != nil; inner = last.GetResponseTxn() {
		last = inner.Responses[len(inner.Responses)-1]
	}
	v, err := parseView(dir, answer.Header.Revision, last.GetResponseRange().Kvs)
	if err == nil {
		v.sure = true
	}
	return v, err
}

// settle grants what the model grants now. It returns v if that is nothing,
// else the next view.
func (s *Store) settle(ctx context.Context, dir string, v *view) (*view, error) {
	all := v.promotions()
	if len(all) == 0 {
		return v, nil
	}
	next, _, err := s.commit(ctx, dir, v, all, 0)
	return next, err
}

// commit makes holds of requests, on the lease l or each on its own if that is
// zero, unless something of the name has changed since v, and says whether it
// did. What was deleted meanwhile cannot be in the way. It returns what there is
// after that.
func (s *Store) commit(ctx context.Context, dir string, v *view, all []promotion, l clientv3.LeaseID) (next *view, done bool, err error) {
	get := clientv3.OpGet(dir, clientv3.WithPrefix())
	answer, err := s.client.Txn(ctx).If(unchangedSince(v, all)...).Then(append(puts(all, l), get)...).Else(get).Commit()
	if errors.Is(err, rpctypes.ErrTooManyOps) && len(all) > 1 { // the server's limit is lower than usual
		return s.commit(ctx, dir, v, all[:len(all)/2], l)
	}
	if err != nil {
		return nil, false, err
	}
	next, err = viewOf(dir, answer)
	return next, answer.Succeeded, err
}

// unchangedSince is that nothing of the name has been written since v, and that
// those who are to be granted something and what they build on are still there: one
// of them at least, or else something of v, without which the revision says nothing.
// It may be one of other data, after a restart without those of v.
func unchangedSince(v *view, all []promotion) []clientv3.Cmp {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(v.dir).WithPrefix(), "<", v.rev+1)}
	tied := false
	for _, p := range all {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.waiter.key), "=", p.waiter.create))
		if p.on != nil {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.on.key), "=", p.on.create))
		}
		tied = tied || p.on != nil || p.waiter.create > 0
	}
	if !tied {
		conditions = append(conditions, v.sameData())
	}
	return conditions
}

// sameData is that something of the view is still there, or still nothing.
func (v *view) sameData() clientv3.Cmp {
	if n := len(v.holds); n > 0 {
		newest := v.holds[n-1]
		return clientv3.Compare(clientv3.CreateRevision(newest.key), "=", newest.create)
	}
	for key, kv := range v.kvs {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", kv.CreateRevision)
	}
	return clientv3.Compare(clientv3.CreateRevision(v.dir).WithPrefix(), "=", 0)
}

// puts makes holds of requests, each on its lease if l is zero.
func puts(all []promotion, l clientv3.LeaseID) (ops []clientv3.Op) {
	for _, p := range all {
		lease := l
		if lease == 0 {
			lease = p.waiter.lease
		}
		ops = append(ops, clientv3.OpPut(p.waiter.key, p.waiter.asHold(p.token), clientv3.WithLease(lease)))
	}
	return ops
}

// rehang puts an entry on another lease, if it is not there already. It returns
// the next view if the entry has changed since it was read.
func (s *Store) rehang(ctx context.Context, dir string, e *entry, l *lease) (*view, error) {
	if e.lease == l.id {
		return nil, nil
	}
	value := e.asWaiter()
	if e.held {
		value = e.asHold(fixedToken(e.token))
	}
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(e.key), "=", e.mod)).
		Then(clientv3.OpPut(e.key, value, clientv3.WithLease(l.id))).
		Else(clientv3.OpGet(dir, clientv3.WithPrefix())).
		Commit()
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return viewOf(dir, answer)
	}
	e.mod, e.lease = answer.Header.Revision, l.id
	return nil, nil
}
