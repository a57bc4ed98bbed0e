package zookeeper

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// maxRequest is how many bytes a transaction may have. The server closes a
	// connection that sends more than a megabyte at once. The rest is for the paths of
	// the record and the ACL.
	maxRequest = 1000 << 10

	// maxQueued is how large a record may become by a new hold or place, with what a
	// transaction needs that promotes all its waiters. The rest is for the tokens of
	// those waiters, and for buried ids.
	maxQueued = 850 << 10

	// opSize is more than what an operation needs besides its path.
	opSize = 64
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
	return found(s.conn.Get(path))
}

// found is the snapshot that an answer of the client has.
func found(data []byte, stat *zk.Stat, err error) (*snapshot, error) {
	n := new(snapshot)
	if err == zk.ErrNoNode {
		return n, nil
	}
	if err != nil {
		return nil, outcome(err)
	}
	if err := n.decode(data); err != nil {
		return nil, err
	}
	n.wrote(stat)
	return n, nil
}

// wrote takes what the server says of the last write of the node.
func (n *snapshot) wrote(stat *zk.Stat) {
	n.version, n.zxid = stat.Version, stat.Mzxid
	n.written = time.Duration(stat.Mtime) * time.Millisecond
}

// fits fails if the transaction from one snapshot to the next is too large for the
// server, or if one that adds a hold or a place leaves too little space for later ones.
func fits(path string, old, next *snapshot, grows bool) error {
	size, each := len(next.body), opSize+len(path)+len("/")+roomSize+idSize
	changed := len(missing(old.queue, next.queue)) + len(missing(next.queue, old.queue))
	if size+changed*each > maxRequest || grows && size+len(next.queue)*each > maxQueued {
		return errTooLarge
	}
	return nil
}

// missing are the ids of list that other lacks.
func missing(list, other []string) []string {
	if slices.Equal(list, other) {
		return nil
	}
	there := make(map[string]bool, len(other))
	for _, id := range other {
		there[id] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return there[id] })
}

// write carries out what a step decided, in one transaction: from the snapshot
// old to the snapshot next, whose zxid and version it fills in. It returns
// errConflict if the node is not as old has it.
func (s *Store) write(path string, old, next *snapshot) error {
	ops, stat := s.transaction(path, old, next)
	sent := time.Now()
	results, err := s.conn.Multi(ops...)
	if err == nil {
		if stat >= 0 {
			next.wrote(results[stat].Stat)
			s.clock.observe(results[stat].Stat, sent)
		}
		return nil
	}
	failed := slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil })
	if failed < 0 {
		return outcome(err)
	}
	switch err := results[failed].Error; err {
	case zk.ErrNoNode:
		if !old.exists() { // an operator has deleted the folder
			if err := s.makeFolders(); err != nil {
				return outcome(err)
			}
		}
		return errConflict
	case zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty:
		return errConflict
	default:
		return outcome(err)
	}
}

// transaction is the operations of write. stat is which of them tells of the written
// node, or -1. A new node is written once more than needed, because only a write is
// answered with its zxid. The room is checked unless a node that has it in its name is
// deleted.
func (s *Store) transaction(path string, old, next *snapshot) (ops []any, stat int) {
	create := func(path string) { ops = append(ops, &zk.CreateRequest{Path: path, Acl: s.acl}) }
	remove := func(path string) { ops = append(ops, &zk.DeleteRequest{Path: path, Version: 0}) }
	gone, room := missing(old.queue, next.queue), path+"/"+old.room
	switch {
	case !old.exists():
		room = path + "/" + next.room
		create(path)
		create(room)
	case next.exists() && len(gone) == 0:
		ops = append(ops, &zk.CheckVersionRequest{Path: room, Version: 0})
	}
	for _, id := range gone {
		remove(room + id)
	}
	for _, id := range missing(next.queue, old.queue) {
		create(room + id)
	}
	if !next.exists() {
		remove(room)
		return append(ops, &zk.DeleteRequest{Path: path, Version: old.version}), -1
	}
	ops = append(ops, &zk.SetDataRequest{Path: path, Data: next.encode(), Version: old.version})
	return ops, len(ops) - 1
}
