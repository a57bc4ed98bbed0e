package zookeeper

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// read reads the node of a name. With sync the server first catches up with the
// leader, so the snapshot is no older than the call. A read that follows an
// answer of a write is as new as that without.
func (s *Store) read(path string, sync bool) (*snapshot, error) {
	if sync {
		if _, err := s.conn.Sync(path); err != nil {
			return nil, outcome(err)
		}
	}
	return s.found(s.conn.Get(path))
}

// found is the snapshot that an answer of the client has.
func (s *Store) found(data []byte, stat *zk.Stat, err error) (*snapshot, error) {
	if err == zk.ErrNoNode {
		return new(snapshot), nil
	}
	if err != nil {
		return nil, outcome(err)
	}
	n := new(snapshot)
	if err := n.decode(data); err != nil {
		return nil, err
	}
	n.wrote(s, stat)
	n.bare = stat.NumChildren == 0
	return n, nil
}

// wrote takes what the server says of the last write of the node.
func (n *snapshot) wrote(s *Store, stat *zk.Stat) {
	n.version, n.zxid = stat.Version, stat.Mzxid
	n.written = time.Duration(stat.Mtime) * time.Millisecond
	for seen := s.zxid.Load(); seen < n.zxid; seen = s.zxid.Load() {
		s.zxid.CompareAndSwap(seen, n.zxid)
	}
}

const (
	// maxRequest is how many bytes the data of a node and the paths of wake nodes may
	// have. The server closes a connection that sends more than a megabyte at once.
	// The rest is for the paths of the record and the ACL.
	maxRequest = 1000 << 10

	// maxQueued is how large the data may become by a new hold or place. The rest is
	// for the tokens of those that wait, and for buried ids.
	maxQueued = 850 << 10

	// idSize is the length of the id of a request.
	idSize = 32

	// opSize is more than what an operation needs besides its path.
	opSize = 64
)

// fits fails if a step makes a record too large. It postpones what the transaction
// has no space for.
func (s *Store) fits(op operation, st *step) error {
	size := len(st.next.body)
	if size > maxRequest || op.adds && len(st.call.Events) == 0 && size > max(maxQueued, st.size) {
		return errTooLarge
	}
	each := opSize + len(s.wakePath("")) + idSize
	st.wakes.postpone((maxRequest - size) / each)
	return nil
}

// write carries out what a step decided, in one transaction: from the snapshot
// old to the snapshot next, whose zxid and version it fills in. It returns
// errConflict if the node is not as old has it.
func (s *Store) write(path string, old, next *snapshot, wakes *wakeChanges) error {
	record, stat := s.recordOps(path, old, next)
	for {
		ops := slices.Concat(record, s.wakeOps(wakes))
		sent, session := time.Now(), s.conn.SessionID()
		results, err := s.conn.Multi(ops...)
		if err == nil {
			if stat >= 0 {
				next.wrote(s, results[stat].Stat)
				s.clock.observe(session, results[stat].Stat, sent)
			}
			return nil
		}
		failed := slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < 0 {
			return outcome(err)
		}
		wake := failed - len(record) // which change of wakes failed, if that is not negative
		switch err := results[failed].Error; {
		case err == zk.ErrNoNode && (wake == len(wakes.deleted) || wake < 0 && !old.exists()):
			// A folder is missing: the ensemble has lost its data.
			if err := s.makeFolders(); err != nil {
				return outcome(err)
			}
			return errConflict
		case err == zk.ErrNoNode && wake >= 0:
			// The handle of a waiter has lost its session. There may be more, and each
			// would cost a transaction: all are deleted afterwards.
			wakes.postpone(0)
		case err == zk.ErrNodeExists && wake >= 0:
			wakes.there = true
		case err == zk.ErrNotEmpty && !old.bare:
			return errForeignChild
		case err == zk.ErrNodeExists, err == zk.ErrBadVersion, err == zk.ErrNoNode, err == zk.ErrNotEmpty:
			return errConflict
		default:
			return outcome(err)
		}
	}
}

// recordOps are the operations of write on the record. stat is which of them tells of
// the written node, or -1.
func (s *Store) recordOps(path string, old, next *snapshot) (ops []any, stat int) {
	room := path + "/" + old.room
	switch {
	case !old.exists():
	case old.bare: // a node that was made again has a room, and cannot be deleted
		ops = []any{&zk.DeleteRequest{Path: path, Version: old.version}}
	case !next.exists():
		ops = []any{
			&zk.DeleteRequest{Path: room, Version: 0},
			&zk.DeleteRequest{Path: path, Version: old.version},
		}
	default:
		ops = []any{
			&zk.CheckVersionRequest{Path: room, Version: 0},
			&zk.SetDataRequest{Path: path, Data: next.encode(), Version: old.version},
		}
		return ops, 1
	}
	if !next.exists() {
		return ops, -1
	}
	// The write is there because only a write is answered with its zxid.
	ops = append(ops,
		&zk.CreateRequest{Path: path, Acl: s.acl},
		&zk.CreateRequest{Path: path + "/" + next.room, Acl: s.acl},
		&zk.SetDataRequest{Path: path, Data: next.encode(), Version: 0})
	return ops, len(ops) - 1
}

// wakeOps are the operations of write on the nodes of waiters.
func (s *Store) wakeOps(wakes *wakeChanges) (ops []any) {
	for _, id := range wakes.deleted {
		ops = append(ops, &zk.DeleteRequest{Path: s.wakePath(id), Version: -1})
	}
	if wakes.created != "" && !wakes.there {
		ops = append(ops, &zk.CreateRequest{Path: s.wakePath(wakes.created), Acl: s.acl, Flags: zk.FlagEphemeral})
	}
	return ops
}
