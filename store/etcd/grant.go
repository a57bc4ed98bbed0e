package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// try runs a transaction that changes something or else reads all there is of the name. It returns the revision
// of the change, or the view.
func (s *Store) try(ctx context.Context, dir string, op clientv3.Op) (revision int64, v *view, err error) {
	txn, err := s.together.do(ctx, dir, op)
	if err == errMaybeDone { // then the conditions fail, and the view has what it made
		txn, err = s.together.alone(ctx, op)
	}
	if err != nil {
		return 0, nil, err
	}
	last := txn.Responses[len(txn.Responses)-1]
	for inner := last.GetResponseTxn(); inner != nil; inner = last.GetResponseTxn() {
		last = inner.Responses[len(inner.Responses)-1]
	}
	if read := last.GetResponseRange(); read != nil {
		v, err = parseView(dir, txn.Header.Revision, read.Kvs)
		return 0, v, err
	}
	return txn.Header.Revision, nil, nil
}

// look reads all there is of a name.
func (s *Store) look(ctx context.Context, dir string) (*view, error) {
	answer, err := s.client.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	return parseView(dir, answer.Header.Revision, answer.Kvs)
}

// grant makes the hold of a request, building on a hold of its owner if there is one. It returns the hold or,
// if the conditions do not hold, what there is.
func (s *Store) grant(ctx context.Context, v *view, e, own *entry, lease clientv3.LeaseID) (h *entry, next *view, err error) {
	if err := e.decode(); err != nil {
		return nil, nil, err
	}
	var op clientv3.Op
	key, token := e.first(), uint64(0)
	switch {
	case own != nil:
		key = e.again()
		op, token = v.again(e, own, lease)
	case e.create > 0:
		op = e.next(e, lease)
	default:
		op = e.enter(e, lease, e.look())
	}
	revision, next, err := s.try(ctx, v.dir, op)
	if revision == 0 {
		return nil, next, err
	}
	return e.becomes(key, revision, token, lease), nil, nil
}

// promote makes the hold of a waiter, on the lease of its place, and those of the readers that are granted with it.
// It returns what there is after that.
func (s *Store) promote(ctx context.Context, v *view, w *entry) (*view, error) {
	if readers := v.leadingReaders(); len(readers) > 1 && readers[0] == w {
		_, next, err := s.try(ctx, v.dir, v.nextReaders(readers))
		if err == nil && next == nil {
			next, err = s.look(ctx, v.dir)
		}
		if !errors.Is(err, rpctypes.ErrTooManyOps) { // the server's limit is lower than usual
			return next, err
		}
	}
	h, next, err := s.grant(ctx, v, w, ofOwner(v.holds, w.tag), w.lease)
	if h != nil {
		return s.look(ctx, v.dir)
	}
	return next, err
}

// advance brings a request as far as the model allows now. It returns its hold and the view that has it or that
// it was granted upon; or the verdict by which it is none. A place that the view does not have any more is not
// taken again.
func (s *Store) advance(ctx context.Context, v *view, e *entry, lease clientv3.LeaseID) (h *entry, d verdict, _ *view, err error) {
	for err == nil {
		if h := find(v.holds, e.id); h != nil {
			return h, d, v, nil
		}
		if w := find(v.queue, e.id); w != nil {
			e = w
		} else if e.create > 0 || v.buried[e.id] {
			return nil, verdict{}, v, nil
		}
		next := v
		switch d = v.judge(e); {
		case d.before != nil:
			next, err = s.promote(ctx, v, d.before)
		case d.granted && d.own == nil && len(v.leadingReaders()) > 1 && v.queue[0].id == e.id:
			next, err = s.promote(ctx, v, e)
		case d.granted:
			h, next, err = s.grant(ctx, v, e, d.own, lease)
		default:
			return nil, d, v, nil
		}
		if h != nil {
			v.holds = append(v.holds, h)
			return h, d, v, nil
		}
		v = next
	}
	return nil, d, nil, err
}

// settle makes the holds of all waiters that the model has granted.
func (s *Store) settle(ctx context.Context, dir string) (*view, error) {
	v, err := s.look(ctx, dir)
	for err == nil {
		due, _ := v.settled()
		if len(due) == 0 {
			return v, nil
		}
		v, err = s.promote(ctx, v, due[0])
	}
	return nil, err
}

// rehang puts a hold or a place on another lease. It returns the next view if the key is not as it was read.
func (s *Store) rehang(ctx context.Context, e *entry, lease clientv3.LeaseID) (*view, error) {
	if err := e.decode(); err != nil {
		return nil, err
	}
	revision, next, err := s.try(ctx, e.dir, clientv3.OpTxn(
		append(e.ours(e.key), clientv3.Compare(clientv3.ModRevision(e.key), "=", e.mod)),
		[]clientv3.Op{e.put(e.key, e.tokenText(), lease)}, []clientv3.Op{e.look()}))
	if revision > 0 {
		e.mod, e.lease = revision, lease
	}
	return next, err
}
