package etcd

import (
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

// format begins all values, with the version of keys and values. Behind it come the owner's hash, a slash and the id,
// as in keys; the lease, as etcdctl has it; the token of a hold; and the details. Version 1 had its keys elsewhere.
const format = `{"dlock":2,"id":"`

// ownRevision stands for the token in the value of a hold whose token follows from the create revision of its
// key, which is not known before the key is written.
const ownRevision = "create_revision * 65536"

// entry is a hold or a waiter.
type entry struct {
	idKeys
	text    string // what its value says behind id, lease and token
	details        // the same, decoded; of a waiter by decode alone, since a queue may be long
	ttl     time.Duration

	// Of one that is written; create is 0 before.
	key    string
	held   bool
	made   bool  // by this call
	create int64 // revision of the key's first write, which for a waiter is its position
	mod    int64 // revision of the key's last write
	lease  clientv3.LeaseID

	token uint64 // of a hold
	lent  bool   // it is, or may be, the token of an earlier hold of the owner
}

// details are what a request has, and what stays as it is when a waiter becomes a hold.
type details struct {
	Owner  string `json:"owner"` // its first six characters
	Label  string `json:"label,omitempty"`
	TTL    string `json:"ttl"`
	Wait   string `json:"wait_ttl"`
	Tokens int    `json:"tokens"` // how many to reserve
}

func newEntry(k idKeys, req store.Request) *entry {
	d := details{store.Short(req.Owner), req.Label, req.TTL.String(), req.WaitTTL.String(), req.Tokens}
	text, _ := json.Marshal(d) // cannot fail
	return &entry{idKeys: k, details: d, text: string(text[1:])}
}

// becomes is the hold that a transaction has made of a request, with its own token if token is 0.
func (e *entry) becomes(key string, revision int64, token uint64, lease clientv3.LeaseID) *entry {
	h := *e
	h.key, h.held, h.made, h.create, h.mod, h.lease = key, true, true, revision, revision, lease
	if h.token, h.lent = token, token != 0; token == 0 {
		h.token = tokenAt(revision)
	}
	return &h
}

// short is how many of the tokens asked for a hold does not have.
func (e *entry) short(asked int) int {
	if e.lent {
		return asked - 1
	}
	return 0
}

// put writes a key of an entry.
func (e *entry) put(key, token string, lease clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(key, e.encode(token, lease), clientv3.WithLease(lease))
}

// encode writes a value.
func (e *entry) encode(token string, lease clientv3.LeaseID) string {
	if token != "" {
		token = `"token":"` + token + `",`
	}
	return valueBegins(e.tag, e.id) + `","lease":"` + strconv.FormatInt(int64(lease), 16) + `",` + token + e.text
}

// on is that the key of a hold is there, on a lease. The value of a key without an id has to be as this handle
// would write it.
func (e *entry) on(lease clientv3.LeaseID) clientv3.Cmp {
	if !e.lacksID(e.key) {
		return clientv3.Compare(clientv3.LeaseValue(e.key), "=", lease)
	}
	return clientv3.Compare(clientv3.Value(e.key), "=", e.encode(e.tokenText(), lease))
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

// parseEntry reads a key. An error matches ErrForeignKey.
func parseEntry(dir string, kv *mvccpb.KeyValue) (e *entry, err error) {
	k, kind, ok := parse(dir, string(kv.Key))
	text, known := strings.CutPrefix(string(kv.Value), format)
	id, text, _ := strings.Cut(text, `","lease":"`)
	if ok && k.id == "" {
		k, ok = firstKeys(dir, id)
	}
	if !ok || !known || id != k.tag+"/"+k.id {
		return nil, foreign(dir)
	}
	e = &entry{
		idKeys: k, key: string(kv.Key), held: !waits(kind),
		create: kv.CreateRevision, mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease),
	}
	_, e.text, _ = strings.Cut(text, `",`)
	if !e.held {
		return e, nil
	}
	text, _ = strings.CutPrefix(e.text, `"token":"`)
	text, e.text, _ = strings.Cut(text, `",`)
	text, own := strings.CutPrefix(text, ownRevision)
	if own {
		text = "0" + strings.TrimPrefix(text, " + ")
	}
	if e.token, err = strconv.ParseUint(text, 10, 64); err != nil {
		return nil, foreign(dir)
	}
	if e.lent = !own; own {
		e.token += tokenAt(e.create)
	}
	return e, e.decode()
}

// decode reads the details. An error matches ErrForeignKey.
func (e *entry) decode() error {
	err := json.Unmarshal([]byte("{"+e.text), &e.details)
	if err == nil {
		e.ttl, err = time.ParseDuration(e.TTL)
	}
	if err != nil {
		return foreign(e.dir)
	}
	return nil
}

// firstKeys are those of the id that a key without one belongs to, by the id in its value.
func firstKeys(dir, text string) (k idKeys, ok bool) {
	tag, id, _ := strings.Cut(text, "/")
	return idKeys{dir, tag, id, store.Exclusive}, len(tag) == tagLen && len(id) == idLen
}

// foreign names the lock and no id, which is not to be shown.
func foreign(dir string) error {
	return fmt.Errorf("etcd: %w: under %q", store.ErrForeignKey, dir)
}
