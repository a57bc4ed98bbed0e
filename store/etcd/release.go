package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Release implements [store.Store]. It takes one round trip, with Bury three, one more for a hold that is not there
// any more, two more for one whose time was up, and blocks until answered or ctx ends. The next waiter is granted by its own handle, upon the deletion.
// If other requests of the owner wait, it takes up to three more, and two for each hold that it makes for those that are
// granted.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	k := s.keys.keysOf(ref.Name, ref.Owner, ref.ID, ref.Mode)
	r, known := s.records.find(ref.ID)
	if r != nil && r.idKeys != k {
		r = nil
	}
	if r != nil {
		s.watches.leave(r)
	}
	defer s.releases.begin(k.dir)()
	var found bool
	var err error
	if r != nil && known.over { // renewals have told that it is lost: its keys go, and the release finds none
		s.records.expire(r, time.Now())
		if err = s.records.end(ctx, r); err != nil {
			return s.outcome(err)
		}
		_, known = s.records.find(ref.ID)
	}
	switch {
	case ref.Bury:
		found, err = s.bury(ctx, k, ref.TTL)
	case r != nil && known.state == holding:
		alone := []clientv3.Cmp{k.noOwn(kindReadWaiter), k.noOwn(kindWriteWaiter), r.hold(known).on(known.lease.id)}
		_, found, err = s.drop(ctx, k, clientv3.OpTxn(alone, []clientv3.Op{clientv3.OpDelete(known.key)}, nil))
	}
	// Other requests of the owner may wait. A place may have become a hold without this handle, and after a snapshot is
	// restored a hold may be a place again.
	if err == nil && !found && !ref.Bury {
		found, err = s.remove(ctx, k, k.removeAll())
	}
	if err != nil {
		s.records.doubt(r)
		return s.outcome(err)
	}
	if r != nil {
		s.forget(r)
	}
	if !found {
		return store.ErrLost
	}
	return nil
}

// errMaybeDone: what was refused for want of space may have been carried out, which etcd says of such calls, too.
var errMaybeDone = errors.New("refused for want of space, and perhaps carried out all the same")

// remove deletes keys of an id and reports whether there was one. Requests of its owner that were granted together with
// it get their holds first: without it they would wait again.
func (s *Store) remove(ctx context.Context, k idKeys, ops []clientv3.Op) (found bool, err error) {
	alone, found, err := s.drop(ctx, k, clientv3.OpTxn(k.noSibling(), ops, nil))
	if err != nil || alone {
		return found, err
	}
	if _, err = s.lookSettled(ctx, k.dir); err == nil || errors.Is(err, store.ErrForeignKey) {
		_, found, err = s.drop(ctx, k, clientv3.OpTxn(nil, ops, nil))
	}
	return found, err
}

// drop deletes keys of an id if conditions hold, and reports whether they do and whether there was a key.
func (s *Store) drop(ctx context.Context, k idKeys, op clientv3.Op) (holds, found bool, err error) {
	answer, repeated, err := s.together.do(ctx, k.dir, op)
	if err != nil {
		return false, false, err
	}
	if found = deleted(answer); !found && repeated {
		err = errMaybeDone
	}
	return answer.Succeeded, found, err
}

// bury deletes all keys that an id may have, and leaves a key by which it is refused for ttl.
func (s *Store) bury(ctx context.Context, k idKeys, ttl time.Duration) (found bool, err error) {
	sent := time.Now()
	lease, err := s.client.Grant(ctx, seconds(ttl))
	if errors.Is(err, rpctypes.ErrNoSpace) { // as a late request will find too
		if found, err2 := s.remove(ctx, k, k.removeAll()); found || err2 != nil {
			return false, fmt.Errorf("released, and not buried: %v", errors.Join(err, err2))
		}
	}
	if err != nil {
		return false, err
	}
	found, err = s.remove(ctx, k, append(k.removeAll(),
		clientv3.OpPut(k.refused(), tombstone, clientv3.WithLease(lease.ID))))
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = errMaybeDone // then the burial hangs on the lease
	case isRefusal(err):
		s.client.Revoke(ctx, lease.ID)
	}
	if rest := time.Duration(lease.TTL)*time.Second - time.Since(sent); err == nil && rest < ttl { // from its writing on
		_, err = s.leases.keepAlive(ctx, lease.ID)
	}
	return found, err
}

// tombstone is the value of the key of an id that is refused.
const tombstone = `{"dlock":2,"refused":true}`

// deleted reports whether a transaction has deleted a key.
func deleted(answer *pb.TxnResponse) bool {
	for _, r := range answer.GetResponses() {
		if r.GetResponseDeleteRange().GetDeleted() > 0 || deleted(r.GetResponseTxn()) {
			return true
		}
	}
	return false
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
