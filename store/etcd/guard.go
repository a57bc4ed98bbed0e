package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Guard returns a condition for a transaction of the caller's own: it commits only while the hold h, such as a
// *dlock.Hold, is there. A hold that this handle does not have, or whose method Err, if it has one, says that it is over,
// gives a condition that is never true. Unlock h after the commit: a goroutine of this process may have the lock next,
// and the condition does not tell the two apart. Guard sends nothing. The transaction has to go to the same cluster, and its user needs the right to read the keys of the
// lock. Like the token, the condition is a revision: after the cluster has started again without its data, another
// hold may have the same one until this one's holder is told.
//
//	client.Txn(ctx).If(locks.Guard(hold)).Then(clientv3.OpPut("config", "new")).Commit()
func (s *Store) Guard(h interface {
	Name() string
	Token() uint64
}) clientv3.Cmp {
	dir := s.keys.dir(h.Name())
	if e, ok := h.(interface{ Err() error }); !ok || e.Err() == nil {
		if key, create := s.records.withToken(dir, h.Token()); key != "" {
			return still(key, create)
		}
	}
	return clientv3.Compare(clientv3.CreateRevision(dir), "<", 0)
}

// withToken finds the key of the hold that has reserved a token: a lock that was passed on in this process has a later
// token than its key. An owner's holds of one name may have the same token, and while one of them is there so is the
// lock.
func (rs *records) withToken(dir string, token uint64) (key string, create int64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	fits := func(r *record) bool { return r.dir == dir && r.state == holding && r.reserved(token) }
	granted := rs.first[dir] // nearly always
	if granted == nil || !fits(granted) {
		granted = nil
		for _, r := range rs.m {
			if fits(r) && (granted == nil || r.token > granted.token) {
				granted = r
			}
		}
	}
	if granted == nil {
		return "", 0
	}
	return granted.key, granted.create
}

// reserved reports whether a hold has reserved a token. Callers have records.mu. A hold that was built on an earlier one
// of its owner has that one's token. How many the earlier one reserved is not known any more: all later tokens of its
// grant count.
func (r *record) reserved(token uint64) bool {
	grant := r.token >> tokenShift
	if lent := grant != uint64(r.create); lent {
		return token>>tokenShift == grant && r.token <= token
	}
	return r.token <= token && token-r.token < uint64(r.req.Tokens)
}
