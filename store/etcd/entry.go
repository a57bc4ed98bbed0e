package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// A token is the revision of the transaction that granted, shifted to leave room for the tokens that a request
// reserves.
const (
	tokenShift = 16
	maxTokens  = 1 << tokenShift
)

func tokenAt(revision int64) uint64 { return uint64(revision) << tokenShift }

// format begins all values, with the version of keys and values. Version 1 had its keys elsewhere.
const format = `{"dlock":2,"id":"`

// ownRevision stands for the token in the value of a hold whose token follows from the create revision of its
// key, which is not known before the key is written.
const ownRevision = "create_revision * 65536"

// entry is a hold or a waiter.
type entry struct {
	idKeys
	key    string // hold or place; "" if it is not written yet
	held   bool
	create int64 // revision of the key's first write, which for a waiter is its position
	mod    int64 // revision of the key's last write
	lease  clientv3.LeaseID
	text   []byte // the value; nil once it is decoded

	owner  string // its first six characters
	token  uint64 // of a hold
	lent   bool   // it is, or may be, the token of an earlier hold of the owner
	tokens int    // how many to reserve
	ttl    time.Duration
	wait   time.Duration
	label  string
}

// value is an entry as its key has it.
type value struct {
	Format int    `json:"dlock"`
	ID     string `json:"id"`    // the owner's hash, a slash and the id, as in keys
	Lease  string `json:"lease"` // that the key hangs on, as etcdctl has it
	Token  string `json:"token,omitempty"`
	Owner  string `json:"owner"`
	Label  string `json:"label,omitempty"`
	TTL    string `json:"ttl"`
	Wait   string `json:"wait_ttl"`
	Tokens int    `json:"tokens"`
}

func newEntry(k idKeys, req store.Request) *entry {
	return &entry{
		idKeys: k, owner: store.Short(req.Owner), tokens: req.Tokens,
		ttl: req.TTL, wait: req.WaitTTL, label: req.Label,
	}
}

// becomes is the hold that a transaction has made of a request, with its own token if token is 0.
func (e *entry) becomes(key string, revision int64, token uint64, lease clientv3.LeaseID) *entry {
	h := *e
	h.key, h.held, h.create, h.mod, h.lease = key, true, revision, revision, lease
	if h.token, h.lent = token, token != 0; token == 0 {
		h.token = tokenAt(revision)
	}
	return &h
}

// short is how many of the tokens asked for a hold does not have.
func (e *entry) short() int {
	if e.lent {
		return e.tokens - 1
	}
	return 0
}

// put writes a key of an entry.
func (e *entry) put(key, token string, lease clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(key, string(e.encode(token, lease)), clientv3.WithLease(lease))
}

// encode writes a [value]. It does so for each renewal, where encoding/json would take most of the time.
func (e *entry) encode(token string, lease clientv3.LeaseID) []byte {
	text := append(make([]byte, 0, 320), format...)
	text = append(append(append(append(text, e.tag...), '/'), e.id...), `","lease":"`...)
	text = strconv.AppendInt(text, int64(lease), 16)
	if token != "" {
		text = append(append(text, `","token":"`...), token...)
	}
	text = appendQuoted(append(text, `","owner":`...), e.owner)
	if e.label != "" {
		text = appendQuoted(append(text, `,"label":`...), e.label)
	}
	text = append(append(text, `,"ttl":"`...), e.ttl.String()...)
	text = append(append(text, `","wait_ttl":"`...), e.wait.String()...)
	return append(strconv.AppendInt(append(text, `","tokens":`...), int64(e.tokens), 10), '}')
}

// appendQuoted writes text as encoding/json does, which plain text need not be given to.
func appendQuoted(to []byte, s string) []byte {
	if !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) }) {
		return append(append(append(to, '"'), s...), '"')
	}
	quoted, _ := json.Marshal(s) // cannot fail
	return append(to, quoted...)
}

// on is that the key of a hold is there, on a lease. The value of a key without an id has to be as this handle
// would write it.
func (e *entry) on(lease clientv3.LeaseID) clientv3.Cmp {
	if !e.lacksID(e.key) {
		return clientv3.Compare(clientv3.LeaseValue(e.key), "=", lease)
	}
	return clientv3.Compare(clientv3.Value(e.key), "=", string(e.encode(e.tokenText(), lease)))
}

// valueBegins is how the values of an id begin, or those of an owner.
func valueBegins(tag, id string) string { return format + tag + "/" + id }

// tokenText is the token of an entry that has been written, in its value.
func (e *entry) tokenText() string {
	switch {
	case !e.held:
		return ""
	case e.token == tokenAt(e.create):
		return ownRevision
	}
	return strconv.FormatUint(e.token, 10)
}

// parseEntry reads a key, and the value of a hold. A waiter's value is decoded when it is needed, since a queue
// may be long. An error matches ErrForeignKey.
func parseEntry(dir string, kv *mvccpb.KeyValue) (*entry, error) {
	p, ok := parse(dir, string(kv.Key))
	if ok && p.id == "" {
		p.idKeys, ok = firstKeys(dir, kv.Value)
	}
	if !ok || !bytes.HasPrefix(kv.Value, []byte(valueBegins(p.tag, p.id))) {
		return nil, foreign(dir)
	}
	e := &entry{
		idKeys: p.idKeys, key: string(kv.Key), held: !p.waits(),
		create: kv.CreateRevision, mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease), text: kv.Value,
	}
	if e.held {
		return e, e.decode()
	}
	return e, nil
}

// firstKeys are those of the id that a key without one belongs to, by its value.
func firstKeys(dir string, text []byte) (k idKeys, ok bool) {
	var v value
	if json.Unmarshal(text, &v) != nil {
		return k, false
	}
	tag, id, _ := strings.Cut(v.ID, "/")
	return idKeys{dir, tag, id, store.Exclusive}, len(tag) == tagLen && len(id) == idLen
}

// decode reads the value, once. An error matches ErrForeignKey.
func (e *entry) decode() (err error) {
	if e.text == nil {
		return nil
	}
	var v value
	if err = json.Unmarshal(e.text, &v); err == nil {
		e.ttl, err = time.ParseDuration(v.TTL)
	}
	if err == nil {
		e.wait, err = time.ParseDuration(v.Wait)
	}
	switch {
	case err != nil || !e.held:
	case v.Token == ownRevision:
		e.token = tokenAt(e.create)
	default:
		text, of := strings.CutPrefix(v.Token, ownRevision+" + ")
		e.lent = !of
		if e.token, err = strconv.ParseUint(text, 10, 64); of {
			e.token += tokenAt(e.create)
		}
	}
	if err != nil {
		return foreign(e.dir)
	}
	e.text, e.owner, e.label, e.tokens = nil, v.Owner, v.Label, v.Tokens
	return nil
}

// foreign names the lock and no id, which is not to be shown.
func foreign(dir string) error {
	return fmt.Errorf("etcd: %w: under %q", store.ErrForeignKey, dir)
}
