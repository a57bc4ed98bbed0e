package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// try runs a transaction that changes something, or else reads all there is of the name. It returns the revision of the
// change, or 0, and the view if it has read one. What it did where it is sent twice the view has.
func (s *Store) try(ctx context.Context, dir string, op clientv3.Op) (revision int64, v *view, err error) {
	txn, _, err := s.together.do(ctx, dir, op)
	if err != nil {
		return 0, nil, err
	}
	if txn.Succeeded {
		revision = txn.Header.Revision
	}
	last := txn.Responses[len(txn.Responses)-1]
	for inner := last.GetResponseTxn(); inner != nil; inner = last.GetResponseTxn() {
		last = inner.Responses[len(inner.Responses)-1]
	}
	if read := last.GetResponseRange(); read != nil {
		v, err = parseView(dir, txn.Header.Revision, read.Kvs)
	}
	return revision, v, err
}

// look reads all there is of a name.
func (s *Store) look(ctx context.Context, dir string) (*view, error) {
	answer, err := s.client.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	return parseView(dir, answer.Header.Revision, answer.Kvs)
}

// leaser says on which lease a hold is to be made.
type leaser func(context.Context) (*lease, error)

// settle makes the holds that are due, in order, until none is left or e has its hold. It returns that hold, nil if e
// is nil or not due, and the view by which it stopped. Holds are made on the leases of their places, but e's on its own.
func (s *Store) settle(ctx context.Context, v *view, e *entry, own leaser) (h *entry, _ *view, err error) {
	for err == nil {
		if e != nil && find(v.holds, e.id) != nil {
			return find(v.holds, e.id), v, nil
		}
		w := v.due(e)
		if w == nil {
			return nil, v, nil
		}
		if own != nil && w.id == e.id {
			l, err := own(ctx)
			if err != nil {
				return nil, nil, err
			}
			w.lease = l.id
		}
		var now *view
		h, now, err = s.makeHold(ctx, v, w)
		done := h != nil && e != nil && h.id == e.id
		switch {
		case now != nil:
			v = now
		case done:
			v.holds = append(v.holds, h)
		case h != nil:
			v, err = s.look(ctx, w.dir)
		}
		if done {
			return h, v, nil
		}
	}
	return nil, nil, err
}

// makeHold makes the hold of a request or a waiter on its lease, building on a hold of its owner if there is one, and
// those of the readers that are granted with it. It returns the hold and, if that builds on another one or the conditions
// do not hold, what there is.
func (s *Store) makeHold(ctx context.Context, v *view, w *entry) (h *entry, now *view, err error) {
	var op clientv3.Op
	key, token := w.first(), uint64(0)
	switch own, readers := ofOwner(v.holds, w.tag), v.leadingReaders(); {
	case own != nil:
		key = w.again()
		op, token = v.again(w, own, w.lease)
	case w.create == 0:
		op = w.enter(w.lease, w.look())
	case len(readers) > 1 && readers[0] == w:
		op = next(readers...)
	default:
		op = next(w)
	}
	revision, now, err := s.try(ctx, v.dir, op)
	if errors.Is(err, rpctypes.ErrTooManyOps) && w.create > 0 { // several readers, for a server whose limit is low
		revision, now, err = s.try(ctx, v.dir, next(w))
	}
	if err != nil || revision == 0 {
		return nil, now, err
	}
	return w.becomes(key, revision, token, w.lease), now, nil
}

// rehang puts a hold or a place on another lease. It returns the next view if the key is not as it was read.
func (s *Store) rehang(ctx context.Context, e *entry, l *lease) (*view, error) {
	revision, now, err := s.try(ctx, e.dir, clientv3.OpTxn(
		append(e.ours(e.key), clientv3.Compare(clientv3.ModRevision(e.key), "=", e.mod)),
		[]clientv3.Op{e.put(e.key, e.tokenText(), l.id)}, []clientv3.Op{e.look()}))
	if revision > 0 {
		e.mod, e.lease = revision, l.id
	}
	return now, err
}
