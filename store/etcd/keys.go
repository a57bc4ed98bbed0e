package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/store"
)

// maxPrefixLen keeps keys short.
const maxPrefixLen = 128

// The kinds of keys, by the text behind the name. Their order matters: conditions compare ranges from one kind
// to another.
const (
	kindRefused     = "!"  // a buried id
	kindReadWaiter  = "qs" // a waiter for a shared hold
	kindWriteWaiter = "qx" // a waiter for an exclusive hold
	kindRead        = "s"  // a shared hold
	kindWrite       = "x"  // an exclusive hold
)

const tagLen, idLen = 32, 32

// layout builds keys: prefix/name/kind/owner/id for holds and waiters, and prefix/name/!/id for a buried id.
// The first exclusive hold is prefix/name/x, without an id: etcd keeps each deleted key until it compacts, and
// a condition on a range visits it. Names are escaped, so that no name's keys begin like those of another name.
// The owner is a hash, because the owner itself may re-enter.
type layout struct{ prefix string }

// idKeys says which keys one id may have under its name.
type idKeys struct {
	dir  string // the prefix of all keys of the name
	tag  string // the hash of the owner
	id   string
	mode store.Mode
}

func (l layout) keysOf(name, owner, id string, mode store.Mode) idKeys {
	sum := sha256.Sum256([]byte(owner))
	return idKeys{l.dir(name), hex.EncodeToString(sum[:tagLen/2]), id, mode}
}

// first is the hold of an id whose owner had none.
func (k idKeys) first() string {
	if k.mode == store.Exclusive {
		return k.dir + kindWrite
	}
	return k.again()
}

// again is its hold if that was built on another one of its owner.
func (k idKeys) again() string { return k.of(kindWrite, kindRead) }

func (k idKeys) place() string { return k.of(kindWriteWaiter, kindReadWaiter) }

func (k idKeys) refused() string { return k.dir + kindRefused + "/" + k.id }

func (k idKeys) of(exclusive, shared string) string {
	kind := exclusive
	if k.mode == store.Shared {
		kind = shared
	}
	return k.dir + kind + "/" + k.tag + "/" + k.id
}

// lacksID reports whether one of its keys is that of the first exclusive hold, which only says in its value whose it is.
func (k idKeys) lacksID(key string) bool { return len(key) == len(k.dir)+len(kindWrite) }

// dir is what all keys of a name begin with.
func (l layout) dir(name string) string { return l.prefix + "/" + url.PathEscape(name) + "/" }

// parsed is what a key says.
type parsed struct {
	idKeys
	kind string
}

// parse reads a key that begins with dir. It reports false for a key of another form. Of the key without an id
// only the kind is known.
func parse(dir, key string) (p parsed, ok bool) {
	rest, ok := strings.CutPrefix(key, dir)
	if ok && rest == kindWrite {
		return parsed{kind: kindWrite}, true
	}
	f := strings.Split(rest, "/")
	if !ok || len(f) == 2 && f[0] == kindRefused {
		return parsed{idKeys: idKeys{id: f[len(f)-1]}, kind: kindRefused}, ok && len(f[1]) == idLen
	}
	if len(f) != 3 || len(f[1]) != tagLen || len(f[2]) != idLen {
		return p, false
	}
	p = parsed{idKeys{dir, f[1], f[2], store.Exclusive}, f[0]}
	switch p.kind {
	case kindRead, kindReadWaiter:
		p.mode = store.Shared
	case kindWrite, kindWriteWaiter:
	default:
		return p, false
	}
	return p, true
}

func (p *parsed) waits() bool { return p.kind == kindReadWaiter || p.kind == kindWriteWaiter }

// dirOf is the dir of a key, "" for a key of another form.
func (l layout) dirOf(key string) string {
	rest, ok := strings.CutPrefix(key, l.prefix+"/")
	if i := strings.IndexByte(rest, '/'); ok && i > 0 {
		return key[:len(key)-len(rest)+i+1]
	}
	return ""
}

// name is that of a dir.
func (l layout) name(dir string) (string, error) {
	return url.PathUnescape(dir[len(l.prefix)+1 : len(dir)-1])
}
