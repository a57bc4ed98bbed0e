package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes one round trip, with Bury two, and
// blocks until answered or ctx ends. Who waits for the name is granted it by its
// own handle, upon the deletion.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	key := s.keys.entry(ref.Name, ref.ID)
	there := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	var then, otherwise []clientv3.Op
	var tomb *lease
	then = append(then, clientv3.OpDelete(key))
	if ref.Bury {
		var err error
		if tomb, err = s.grantLease(ctx, seconds(ref.TTL)); err != nil {
			return s.outcome(err)
		}
		put := clientv3.OpPut(tombstone(key), format, clientv3.WithLease(tomb.id))
		then, otherwise = append(then, put), append(otherwise, put)
	}
	c := s.claims.find(ref.ID)
	if c != nil {
		s.rooms.leave(c)
	}
	answer, err := s.client.Txn(ctx).If(there).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		if tomb != nil {
			s.revoke(tomb)
		}
		return s.outcome(err)
	}
	if c != nil {
		s.claims.forget(c)
		if l, _, _, _ := s.claims.known(c); c.req.Fixed && l != nil {
			s.revoke(l)
		}
	}
	if !answer.Succeeded {
		return store.ErrLost
	}
	return nil
}
