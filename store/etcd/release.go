package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes one round trip, with Bury three, one more for a hold that is not there
// any more, and blocks until answered or ctx ends. The next waiter is granted by its own handle, upon the deletion.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var k idKeys
	r, known := s.records.knows(ref.ID)
	if r != nil && r.req.Name == ref.Name && r.req.Owner == ref.Owner && r.req.Mode == ref.Mode {
		k = r.idKeys
		s.watches.leave(r)
	} else {
		k, r = s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode), nil
	}
	defer s.releases.begin(k.dir)()
	var found bool
	var err error
	if ref.Bury {
		found, err = s.bury(ctx, k, ref)
	} else {
		key := ""
		if r != nil && known.state == holding {
			key = known.key
		}
		found, err = s.remove(ctx, k, key)
	}
	if err != nil {
		if r != nil {
			s.records.doubt(r)
		}
		return s.outcome(err)
	}
	if r != nil {
		s.records.forget(r)
		s.watches.leave(r) // again: an answer that came late may have had it wait
	}
	if !found {
		return store.ErrLost
	}
	return nil
}

// releaseWait is how long at most a request waits for a release of its handle.
const releaseWait = 10 * time.Millisecond

// releases are the names for which this handle has a release under way. A request for such a name waits for its
// answer: sent at once it would find the hold, take a place and need another transaction to be granted.
type releases struct {
	mu sync.Mutex
	m  map[string]chan struct{} // closed when the release is answered
}

func (rs *releases) begin(dir string) (end func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.m[dir] != nil {
		return func() {}
	}
	answered := make(chan struct{})
	rs.m[dir] = answered
	return func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		delete(rs.m, dir)
		close(answered)
	}
}

func (rs *releases) wait(ctx context.Context, dir string) {
	rs.mu.Lock()
	answered := rs.m[dir]
	rs.mu.Unlock()
	if answered == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// remove deletes the key of a hold, and if it is not there whatever key the id has. It reports whether there was one. A
// place may have become a hold without this handle, and after a snapshot is restored a hold may be a place again.
func (s *Store) remove(ctx context.Context, k idKeys, held string) (found bool, err error) {
	ops := []clientv3.Op{clientv3.OpDelete(held)}
	if held == "" {
		ops = k.removeAll()
	}
	op := clientv3.OpTxn(k.ours(held), ops, nil)
	answer, err := s.together.do(ctx, k.dir, op)
	maybeDone := err == errMaybeDone
	if maybeDone {
		answer, err = s.together.alone(ctx, op)
	}
	if found = err == nil && deleted(answer) > 0; err == nil && !found && held != "" {
		found, err = s.remove(ctx, k, "")
	}
	if err == nil && !found && maybeDone {
		err = errMaybeDone
	}
	return found, err
}

// bury is remove that also leaves a key by which the id is refused for ref.TTL.
func (s *Store) bury(ctx context.Context, k idKeys, ref store.Ref) (found bool, err error) {
	sent := time.Now()
	lease, err := s.client.Grant(ctx, seconds(ref.TTL))
	if err != nil {
		if errors.Is(err, rpctypes.ErrNoSpace) { // as a late request will find too
			s.remove(ctx, k, "")
		}
		return false, err
	}
	answer, err := s.client.Txn(ctx).Then(append(k.removeAll(),
		clientv3.OpPut(k.refused(), tombstone, clientv3.WithLease(lease.ID)))...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = errMaybeDone // then the burial hangs on the lease
	case isRefusal(err):
		s.client.Revoke(ctx, lease.ID)
	}
	if rest := time.Duration(lease.TTL)*time.Second - time.Since(sent); err == nil && rest < ref.TTL { // from its writing on
		_, err = s.leases.keepAlive(ctx, lease.ID)
	}
	if err != nil {
		return false, err
	}
	return deleted((*pb.TxnResponse)(answer)) > 0, nil
}

// tombstone is the value of the key of an id that is refused.
const tombstone = `{"dlock":2,"refused":true}`

// deleted is how many keys a transaction has deleted.
func deleted(answer *pb.TxnResponse) (n int64) {
	for _, r := range answer.Responses {
		n += r.GetResponseDeleteRange().GetDeleted()
		if inner := r.GetResponseTxn(); inner != nil {
			n += deleted(inner)
		}
	}
	return n
}
