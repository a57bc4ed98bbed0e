package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Guard returns a condition for a transaction of the caller's own: it commits only while the hold h, such as a
// *dlock.Hold, is there. A hold that this handle does not have, or whose method Err, if it has one, says that it is over,
// gives a condition that never holds. Unlock h after the commit: a goroutine of this process may have the lock next,
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

// withToken finds the key of the hold that has reserved a token: one that was passed on in this process is not the first.
// An owner's holds of one name may have the same tokens, and while one of them is there so is the lock.
func (rs *records) withToken(dir string, token uint64) (key string, create int64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	reserved := func(r *record) bool {
		return r.state == holding && r.token <= token && token-r.token < uint64(r.req.Tokens)
	}
	if r := rs.first[dir]; r != nil && reserved(r) {
		return r.key, r.create // as nearly always
	}
	for _, r := range rs.m {
		if r.dir == dir && reserved(r) {
			return r.key, r.create
		}
	}
	return "", 0
}
