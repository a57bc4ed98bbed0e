package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// viewOf reads the range in a transaction's answer.
func viewOf(dir string, answer *clientv3.TxnResponse) (*view, error) {
	last := answer.Responses[len(answer.Responses)-1]
	if inner := last.GetResponseTxn(); inner != nil {
		last = inner.Responses[len(inner.Responses)-1]
	}
	return parseView(dir, answer.Header.Revision, last.GetResponseRange().Kvs)
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

// commit makes holds of requests if nothing of the name has been written since v
// and what they build on is still there, and says whether it did. What was
// deleted meanwhile cannot be in the way. Each stays on its lease, if l is zero.
// It returns what there is after that.
func (s *Store) commit(ctx context.Context, dir string, v *view, all []promotion, l clientv3.LeaseID) (next *view, done bool, err error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(dir).WithPrefix(), "<", v.rev+1)}
	var puts []clientv3.Op
	for _, p := range all {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.waiter.key), "=", p.waiter.create))
		if p.on != nil {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.on.key), "=", p.on.create))
		}
		lease := l
		if lease == 0 {
			lease = p.waiter.lease
		}
		puts = append(puts, clientv3.OpPut(p.waiter.key, p.waiter.asHold(p.token), clientv3.WithLease(lease)))
	}
	get := clientv3.OpGet(dir, clientv3.WithPrefix())
	answer, err := s.client.Txn(ctx).If(conditions...).Then(append(puts, get)...).Else(get).Commit()
	if err != nil {
		return nil, false, err
	}
	next, err = viewOf(dir, answer)
	return next, answer.Succeeded, err
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
