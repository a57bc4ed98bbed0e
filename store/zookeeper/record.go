package zookeeper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// A record's node has the bytes "dlz" and the version 1, the epoch and the moment
// by which its deadlines were reckoned (8 bytes each), its room (12 bytes) and the
// encoded record of package store/model. Tokens that were granted with the write of the
// record are written as provisional ones.
const (
	magic    = "dlz\x01"
	roomSize = 12
	header   = len(magic) + 8 + 8 + roomSize
	idSize   = 32 // of the id of a request
)

const (
	// tokensPerWrite is how many tokens a transaction may issue: the token of a
	// transaction is its zxid times this.
	tokensPerWrite = 1 << tokenBits
	tokenBits      = 12

	// provisional is the least token that stands for one of its own write. Final
	// tokens are below it as long as there were fewer than half a million leaders.
	provisional = 1 << 63
)

// snapshot is a record's node as it was when it was read or written. The zero
// snapshot is a free name.
type snapshot struct {
	// room is the name of a child that the node has from its making to its end.
	// It is random. A node that was deleted and made again may have the same
	// version, but not the same room.
	room    string
	version int32

	// queue are the requests that wait, by id. Each has a child of the node, named by
	// room and id, which is deleted when it waits no more.
	queue []string

	epoch uint64        // by whose leader's clock the deadlines are
	now   time.Duration // the moment on that clock
	body  []byte        // of package store/model

	zxid    int64         // of the last write
	written time.Duration // when that was, by the clock of its leader
}

// exists says whether there is a node.
func (n *snapshot) exists() bool { return n.room != "" }

// encode returns the data of the node.
func (n *snapshot) encode() []byte {
	b := append(make([]byte, 0, header+len(n.body)), magic...)
	b = binary.BigEndian.AppendUint64(b, n.epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(n.now))
	b = append(b, n.room...)
	return append(b, n.body...)
}

// decode reads the data of a node. What is none of this package's is
// [store.ErrForeignKey].
func (n *snapshot) decode(data []byte) error {
	if !bytes.HasPrefix(data, []byte(magic)) || len(data) < header {
		return fmt.Errorf("%w: the node is no record of version 1", store.ErrForeignKey)
	}
	rest := data[len(magic):]
	n.epoch, n.now = binary.BigEndian.Uint64(rest), time.Duration(binary.BigEndian.Uint64(rest[8:]))
	n.room, n.body = string(data[header-roomSize:header]), data[header:]
	return nil
}

// record returns the record with final tokens, and with deadlines on the clock of
// the present leader. Under another leader than the one that they were reckoned
// by, an entry lasts as long as it had left: from the write on if that was under the
// present leader, and else from now on. So an entry may live longer, and never less.
func (n *snapshot) record(p present) (*model.Record, error) {
	r := new(model.Record)
	if !n.exists() {
		return r, nil
	}
	if err := r.UnmarshalBinary(n.body); err != nil {
		return nil, err
	}
	moved := time.Duration(0)
	switch {
	case epochOf(n.zxid) != p.epoch:
		moved = p.low - n.now
	case n.epoch != p.epoch:
		moved = n.written - n.now
	}
	r.Rebase(provisional, firstToken(n.zxid), moved)
	return r, nil
}

// at returns the record, and the present as early as it can be.
func (n *snapshot) at(p present) (r *model.Record, now time.Duration, err error) {
	now = p.low
	if epochOf(n.zxid) == p.epoch {
		now = max(now, n.written)
	}
	r, err = n.record(p)
	return r, now, err
}

// firstToken is the first token of a transaction.
func firstToken(zxid int64) uint64 { return uint64(zxid) << tokenBits }

// final is the token that a token of a write with that zxid stands for.
func final(token uint64, zxid int64) uint64 {
	if token < provisional {
		return token
	}
	return firstToken(zxid) + (token - provisional)
}

// counter issues the provisional tokens of one write.
type counter struct {
	issued uint64
	ranOut bool   // a request that could be granted had no token left
	last   uint64 // not less than any token that was issued before the write
}

// Issue implements [model.Counter]. It leaves half of what there is for requests
// that are granted in the same step. Where that is not enough, the step is followed
// by another one.
func (c *counter) Issue(n int) (first uint64, reserved int) {
	left := tokensPerWrite - c.issued
	if left == 0 {
		c.ranOut = true
		return 0, 0
	}
	take := min(uint64(n), max(left/2, 1))
	first = provisional + c.issued
	c.issued += take
	return first, int(take)
}

// Last implements [model.Counter].
func (c *counter) Last() uint64 {
	if c.issued > 0 {
		return provisional + c.issued - 1
	}
	return c.last
}
