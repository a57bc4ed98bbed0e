package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/dlock-go/dlock/store"
)

// maxPrefixLen keeps keys short.
const maxPrefixLen = 128

// The kinds of keys, by the text behind the name. Their order matters: conditions
// compare ranges from one kind to another.
const (
	kindRefused     = "!"  // a buried id
	kindReadWaiter  = "qs" // a waiter for a shared hold
	kindWriteWaiter = "qx" // a waiter for an exclusive hold
	kindRead        = "s"  // a shared hold
	kindWrite       = "x"  // an exclusive hold
)

// layout builds keys: prefix/name/kind/owner/id for holds and waiters, and
// prefix/name/!/id for a buried id. Names are escaped, so that no name's keys begin
// like those of another name. The owner is a hash, because the owner itself may re-enter.
type layout struct{ prefix string }

// idKeys are the keys of one id under its name.
type idKeys struct {
	dir     string // the prefix of all keys of the name
	tag     string // the hash of the owner
	hold    string
	place   string
	refused string
}

func (l layout) keysOf(name, owner, id string, mode store.Mode) idKeys {
	return keysIn(l.dir(name), tagOf(owner), id, mode)
}

func keysIn(dir, tag, id string, mode store.Mode) idKeys {
	hold, place := kindWrite, kindWriteWaiter
	if mode == store.Shared {
		hold, place = kindRead, kindReadWaiter
	}
	rest := "/" + tag + "/" + id
	return idKeys{dir: dir, tag: tag, hold: dir + hold + rest, place: dir + place + rest, refused: dir + kindRefused + "/" + id}
}

// tagOf is what keys say of an owner.
func tagOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:tagLen/2])
}

const (
	tagLen = 32
	idLen  = 32
)

// dir is what all keys of a name begin with.
func (l layout) dir(name string) string {
	var b strings.Builder
	b.Grow(len(l.prefix) + len(name) + 2)
	b.WriteString(l.prefix)
	b.WriteByte('/')
	for _, c := range []byte(name) {
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	b.WriteByte('/')
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// split is what a key says behind the prefix of its name: its kind, the hash of its
// owner and its id. It reports false for a key of another form.
func split(dir, key string) (kind, tag, id string, ok bool) {
	rest, ok := strings.CutPrefix(key, dir)
	kind, rest, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return "", "", "", false
	}
	if kind == kindRefused {
		return kind, "", rest, len(rest) == idLen
	}
	tag, id, _ = strings.Cut(rest, "/")
	known := kind == kindRead || kind == kindWrite || kind == kindReadWaiter || kind == kindWriteWaiter
	return kind, tag, id, known && len(tag) == tagLen && len(id) == idLen
}

// dirOf is the part of a key that names its lock, false for a key of another form.
func (l layout) dirOf(key string) (dir string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix+"/")
	escaped, _, cut := strings.Cut(rest, "/")
	return l.prefix + "/" + escaped + "/", ok && cut && escaped != ""
}

// name is the inverse of dir, false for a key prefix of another form.
func (l layout) name(dir string) (string, bool) {
	escaped := strings.TrimSuffix(strings.TrimPrefix(dir, l.prefix+"/"), "/")
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		switch {
		case plain(c):
			b.WriteByte(c)
		case c == '%' && i+2 < len(escaped):
			high, low := strings.IndexByte(hexDigits, escaped[i+1]), strings.IndexByte(hexDigits, escaped[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), true
}
