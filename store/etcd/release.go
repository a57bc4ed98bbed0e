package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
			if errors.Is(err, rpctypes.ErrNoSpace) { // as a late request will find too
				s.client.Delete(ctx, key)
			}
			return s.outcome(err)
		}
		put := clientv3.OpPut(tombstone(key), format, clientv3.WithLease(tomb.id))
		then, otherwise = append(then, put), append(otherwise, put)
	}
	c := s.claims.find(ref.ID)
	if c != nil {
		s.rooms.leave(c)
	}
	found, err := s.remove(ctx, key, clientv3.OpTxn([]clientv3.Cmp{there}, then, otherwise), ref)
	if err != nil {
		if tomb != nil {
			s.revoke(tomb)
		}
		return s.outcome(err)
	}
	if c != nil {
		s.claims.forget(c)
		s.rooms.leave(c) // again, for an answer that came late may have had it enter anew
		if l, _, _, _ := s.claims.known(c); l != nil && l.own {
			s.revoke(l)
		}
	}
	if !found {
		return store.ErrLost
	}
	return nil
}

// remove runs the transaction of a release, with what follows from it if this
// handle knows that, and reports whether there was something to remove.
func (s *Store) remove(ctx context.Context, key string, release clientv3.Op, ref store.Ref) (found bool, err error) {
	if ref.Bury {
		answer, err := s.client.Do(ctx, release)
		return err == nil && answer.Txn().Succeeded, err
	}
	dir := s.keys.dir(ref.Name)
	d, end := s.departures.begin(dir, key)
	defer end()
	if all := s.rooms.succession(dir, ref.ID); all != nil {
		found, err = s.succeed(ctx, dir, all, release)
	} else {
		var answer clientv3.OpResponse
		if answer, err = s.client.Do(ctx, release); err == nil {
			found = answer.Txn().Succeeded
		}
	}
	if !found && err == nil {
		found, err = d.removed(ctx)
	}
	return found, err
}
