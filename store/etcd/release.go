package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes one round trip, with Bury two, and blocks
// until answered or ctx ends. The next waiter is granted by its own handle, upon the
// deletion.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	k := s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode)
	r := s.records.find(ref.ID)
	if r != nil {
		s.watches.leave(r)
	}
	var found bool
	var err error
	if ref.Bury {
		found, err = s.bury(ctx, k, ref)
	} else {
		found, err = s.remove(ctx, k)
	}
	if err != nil {
		return s.outcome(err)
	}
	if r != nil {
		s.records.forget(r)
		s.watches.leave(r) // again: an answer that came late may have had it wait
	}
	s.watches.gone(k.dir, k.place, k.hold)
	if !found {
		return store.ErrLost
	}
	return nil
}

// remove deletes the keys of an id, and reports whether there was one. Its place may
// have become a hold without this handle.
func (s *Store) remove(ctx context.Context, k idKeys) (found bool, err error) {
	answer, err := s.client.Txn(ctx).Then(clientv3.OpDelete(k.place), clientv3.OpDelete(k.hold)).Commit()
	return err == nil && deleted(answer) > 0, err
}

// bury is remove that also leaves a key by which the id is refused for ref.TTL.
func (s *Store) bury(ctx context.Context, k idKeys, ref store.Ref) (found bool, err error) {
	lease, _, err := s.grantLease(ctx, seconds(ref.TTL))
	if err != nil {
		if errors.Is(err, rpctypes.ErrNoSpace) { // as a late request will find too
			s.remove(ctx, k)
		}
		return false, err
	}
	answer, err := s.client.Txn(ctx).Then(clientv3.OpDelete(k.place), clientv3.OpDelete(k.hold),
		clientv3.OpPut(k.refused, tombstone, clientv3.WithLease(lease))).Commit()
	if err != nil {
		s.revoke(lease)
		return false, err
	}
	return deleted(answer) > 0, nil
}

// tombstone is the value of the key of a buried id.
const tombstone = `{"dlock":2,"refused":true}`

// deleted is how many keys a transaction has deleted.
func deleted(answer *clientv3.TxnResponse) (n int64) {
	for _, r := range answer.Responses {
		if d := r.GetResponseDeleteRange(); d != nil {
			n += d.Deleted
		}
	}
	return n
}
