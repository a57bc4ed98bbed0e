package model

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
)

// magic opens every encoded record. Its last byte is the version of the format that is
// written. Version 1 is read, too.
var magic = [...]byte{'d', 'l', 'k', 2}

// AppendBinary appends the encoded record to b. It never fails.
//
// The format, version 2: the bytes "dlk", the version byte 2, and three lists:
// holds, queue, buried ids. Each list is its length and then its items. Numbers
// are unsigned varints as in encoding/binary, moments are signed varints in
// nanoseconds, and a text is its length and its bytes.
//
//	hold or waiter: id, owner, label and handle (texts), mode (0 exclusive,
//	                1 shared), tokens asked for, WaitTTL in nanoseconds, token,
//	                tokens short, deadline (a moment), and since when it holds or
//	                waits (a moment; 0 if that is not known; not in version 1)
//	buried id:      id (text), deadline (a moment)
func (r *Record) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, magic[:]...)
	b = appendEntries(b, r.holds)
	b = appendEntries(b, r.queue)
	b = binary.AppendUvarint(b, uint64(len(r.buried)))
	for i := range r.buried {
		b = appendText(b, r.buried[i].id)
		b = binary.AppendVarint(b, int64(r.buried[i].deadline))
	}
	return b, nil
}

func appendEntries(b []byte, entries []entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = appendText(b, e.id)
		b = appendText(b, e.owner)
		b = appendText(b, e.label)
		b = appendText(b, e.handle)
		b = binary.AppendUvarint(b, uint64(e.mode))
		b = binary.AppendUvarint(b, uint64(e.tokens))
		b = binary.AppendUvarint(b, uint64(e.waitTTL))
		b = binary.AppendUvarint(b, e.token)
		b = binary.AppendUvarint(b, uint64(e.short))
		b = binary.AppendVarint(b, int64(e.deadline))
		b = binary.AppendVarint(b, int64(e.since))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// UnmarshalBinary makes r the record that b encodes. Bytes that are no record,
// or a record of a version that this package does not know, are
// [store.ErrForeignKey], and r is then a free name. It keeps no part of b.
func (r *Record) UnmarshalBinary(b []byte) error {
	r.Reset()
	if len(b) < len(magic) || string(b[:3]) != string(magic[:3]) {
		return store.ErrForeignKey
	}
	d := decoder{version: b[3], rest: b[len(magic):]}
	if d.version < 1 || d.version > magic[3] {
		return fmt.Errorf("%w: record of version %d", store.ErrForeignKey, d.version)
	}
	r.holds = d.entries(r.holds)
	r.queue = d.entries(r.queue)
	for range d.length() {
		if d.failed {
			break
		}
		r.buried = append(r.buried, grave{d.text(), d.moment()})
	}
	if d.failed || len(d.rest) > 0 {
		r.Reset()
		return fmt.Errorf("%w: malformed record", store.ErrForeignKey)
	}
	return nil
}

// decoder reads an encoded record. After the first malformed item every read
// returns zero.
type decoder struct {
	version byte
	rest    []byte
	failed  bool
}

func (d *decoder) entries(list []entry) []entry {
	for range d.length() {
		if d.failed {
			break
		}
		e := entry{id: d.text(), owner: d.text(), label: d.text(), handle: d.text()}
		mode := d.number()
		d.failed = d.failed || mode > uint64(store.Shared)
		e.mode = store.Mode(mode)
		e.tokens, e.waitTTL = int(d.size()), time.Duration(d.size())
		e.token, e.short = d.number(), int(d.size())
		e.deadline = d.moment()
		if d.version > 1 {
			e.since = d.moment()
		}
		list = append(list, e)
	}
	return list
}

// length is the length of a list. Each item takes at least a byte, so a length
// beyond the rest is malformed and reserves no memory.
func (d *decoder) length() int {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) number() uint64 {
	n, used := binary.Uvarint(d.rest)
	return advance(d, n, used)
}

// size is a number that fits a signed integer.
func (d *decoder) size() uint64 {
	n := d.number()
	if n > 1<<62 {
		d.failed = true
		return 0
	}
	return n
}

func (d *decoder) moment() time.Duration {
	n, used := binary.Varint(d.rest)
	return time.Duration(advance(d, n, used))
}

func (d *decoder) text() string {
	n := d.length()
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// advance drops the bytes that a number used, or fails if there is none.
func advance[T uint64 | int64](d *decoder, n T, used int) T {
	if d.failed || used <= 0 {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

// EncodeHold appends a record with one hold to b: that of a request of a free
// name at the moment since. A store that grants such requests in a step of its own,
// without a Record, keeps the same bytes so. With token and since 0 it is a template for
// [CompleteHold].
func EncodeHold(b []byte, req store.Request, handle string, token uint64, short int, since time.Duration) []byte {
	r := Record{holds: []entry{{
		id: req.ID, owner: req.Owner, label: req.Label, handle: handle, mode: req.Mode,
		tokens: req.Tokens, waitTTL: req.WaitTTL, token: token, short: short, deadline: since + req.TTL, since: since,
	}}}
	b, _ = r.AppendBinary(b)
	return b
}

// CompleteHold returns the record that a template of [EncodeHold] stands for.
// since is when it was granted, or 0 if that is not known. What is no record of one hold
// is [store.ErrForeignKey].
func CompleteHold(template []byte, token uint64, short int, since, deadline time.Duration) ([]byte, error) {
	var r Record
	if err := r.UnmarshalBinary(template); err != nil {
		return nil, err
	}
	if len(r.holds) != 1 || len(r.queue) != 0 || len(r.buried) != 0 {
		return nil, fmt.Errorf("%w: not a record of one hold", store.ErrForeignKey)
	}
	h := &r.holds[0]
	h.token, h.short, h.since, h.deadline = token, short, since, deadline
	return r.AppendBinary(nil)
}
