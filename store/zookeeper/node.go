package zookeeper

import (
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
	data, stat, err := s.conn.Get(path)
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
	for {
		ops, stat := s.transaction(path, old, next, wakes)
		sent, session := time.Now(), s.conn.SessionID()
		results, err := s.conn.Multi(ops...)
		if err == nil {
			if stat >= 0 {
				next.wrote(s, results[stat].Stat)
				s.clock.observe(session, results[stat].Stat, sent)
			}
			return nil
		}
		failed := -1
		for i, result := range results {
			if result.Error != nil {
				failed = i
				break
			}
		}
		if failed < 0 {
			return outcome(err)
		}
		switch err := results[failed].Error; {
		case failed >= len(ops)-len(wakes.created) && err == zk.ErrNoNode: // the folder is missing
			if err := s.makeFolders(); err != nil {
				return outcome(err)
			}
		case failed >= len(ops)-wakes.count() && (err == zk.ErrNoNode || err == zk.ErrNodeExists):
			// The waiter's handle has lost its session, or the node is there already.
			wakes.drop(failed - (len(ops) - wakes.count()))
		case err == zk.ErrNodeExists, err == zk.ErrBadVersion:
			return errConflict
		case err == zk.ErrNoNode && old.exists():
			return errConflict
		case err == zk.ErrNoNode: // the ensemble has lost its data
			if err := s.makeFolders(); err != nil {
				return outcome(err)
			}
			return errConflict
		default:
			return outcome(err)
		}
	}
}

// transaction is the operations of write. stat is which of them tells of the
// written node, or -1.
func (s *Store) transaction(path string, old, next *snapshot, wakes *wakeChanges) (ops []any, stat int) {
	room := path + "/" + old.room
	switch {
	case !old.exists():
		// The second write is there because only a write is answered with its zxid.
		ops = []any{
			&zk.CreateRequest{Path: path, Acl: s.acl},
			&zk.CreateRequest{Path: path + "/" + next.room, Acl: s.acl},
			&zk.SetDataRequest{Path: path, Data: next.encode(), Version: 0},
		}
		stat = 2
	case next.exists():
		ops = []any{
			&zk.CheckVersionRequest{Path: room, Version: 0},
			&zk.SetDataRequest{Path: path, Data: next.encode(), Version: old.version},
		}
		stat = 1
	default:
		ops = []any{
			&zk.DeleteRequest{Path: room, Version: 0},
			&zk.DeleteRequest{Path: path, Version: old.version},
		}
		stat = -1
	}
	for _, id := range wakes.deleted {
		ops = append(ops, &zk.DeleteRequest{Path: s.wakePath(id), Version: -1})
	}
	for _, id := range wakes.created {
		ops = append(ops, &zk.CreateRequest{Path: s.wakePath(id), Acl: s.acl, Flags: zk.FlagEphemeral})
	}
	return ops, stat
}
