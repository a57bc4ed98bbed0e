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

// dir is what all keys of a name begin with.
func (l layout) dir(name string) string { return l.prefix + "/" + url.PathEscape(name) + "/" }

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
		return k.from(kindWrite)
	}
	return k.again()
}

// again is its hold if that was built on another one of its owner.
func (k idKeys) again() string { return k.of(kindWrite, kindRead) }

func (k idKeys) place() string { return k.of(kindWriteWaiter, kindReadWaiter) }

func (k idKeys) refused() string { return k.from(kindRefused) + "/" + k.id }

func (k idKeys) of(exclusive, shared string) string {
	kind := exclusive
	if k.mode == store.Shared {
		kind = shared
	}
	return k.from(kind) + "/" + k.tag + "/" + k.id
}

// from and to bound the keys of a kind.
func (k idKeys) from(kind string) string { return k.dir + kind }
func (k idKeys) to(kind string) string   { return k.dir + kind + "0" } // the character behind a slash

// lacksID reports whether a key is that of the first exclusive hold, which says only in its value whose it is.
func (k idKeys) lacksID(key string) bool { return key == k.from(kindWrite) }

// parse reads a key that begins with dir. It reports false for a key of another form. Of a buried id only the id is
// known, and of the key without an id nothing but the kind.
func parse(dir, key string) (k idKeys, kind string, ok bool) {
	rest, ok := strings.CutPrefix(key, dir)
	f := strings.Split(rest, "/")
	k = idKeys{dir: dir}
	switch kind = f[0]; {
	case !ok || rest == kindWrite:
		return k, kind, ok
	case len(f) == 2 && kind == kindRefused:
		k.id = f[1]
		return k, kind, len(k.id) == idLen
	case len(f) != 3 || len(f[1]) != tagLen || len(f[2]) != idLen:
		return k, kind, false
	}
	k.tag, k.id = f[1], f[2]
	switch kind {
	case kindRead, kindReadWaiter:
		k.mode = store.Shared
	case kindWrite, kindWriteWaiter:
	default:
		return k, kind, false
	}
	return k, kind, true
}

// waits reports whether keys of a kind are places.
func waits(kind string) bool { return kind == kindReadWaiter || kind == kindWriteWaiter }
