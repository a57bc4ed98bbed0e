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

// A token is the revision of the transaction that granted, shifted to leave room for
// the tokens that a request reserves.
const (
	tokenShift = 16
	maxTokens  = 1 << tokenShift
)

// format is the version of keys and values. Version 1 had its keys elsewhere.
const format = 2

// ownRevision stands for the token in the value of a hold whose token follows from the
// create revision of its key, which is not known before the key is written.
const ownRevision = "create_revision * 65536"

// entry is a hold or a waiter.
type entry struct {
	keys   idKeys
	key    string // keys.hold or keys.place
	id     string
	held   bool
	mode   store.Mode
	create int64 // revision of the key's first write, which for a waiter is its position
	mod    int64 // revision of the key's last write
	lease  clientv3.LeaseID
	text   []byte // the value; nil once it is decoded

	owner  string // its first six characters
	token  uint64 // of a hold
	place  int64  // of a hold that waited: the create revision of its place
	tokens int    // how many to reserve
	ttl    time.Duration
	wait   time.Duration
	label  string
}

// value is an entry as its key has it.
type value struct {
	Format int    `json:"dlock"`
	Token  string `json:"token,omitempty"`
	Place  int64  `json:"place,omitempty"`
	Owner  string `json:"owner"`
	Label  string `json:"label,omitempty"`
	TTL    string `json:"ttl"`
	Wait   string `json:"wait_ttl"`
	Tokens int    `json:"tokens"`
}

func newEntry(k idKeys, req store.Request) *entry {
	return &entry{
		keys: k, key: k.place, id: req.ID, mode: req.Mode, owner: store.Short(req.Owner), tokens: req.Tokens,
		ttl: req.TTL, wait: req.WaitTTL, label: req.Label,
	}
}

// request is what an entry was asked for by, as far as it says so.
func (e *entry) request(name, owner string) store.Request {
	return store.Request{
		Name: name, Owner: owner, ID: e.id, Mode: e.mode, TTL: e.ttl, WaitTTL: e.wait, Tokens: e.tokens, Label: e.label,
	}
}

func (e *entry) asWaiter() string { return e.encode("") }

// asHold is the value of a hold with this token; 0 means that of the transaction.
func (e *entry) asHold(token uint64) string {
	if token == 0 {
		return e.encode(ownRevision)
	}
	return e.encode(strconv.FormatUint(token, 10))
}

func (e *entry) encode(token string) string {
	v := value{Format: format, Token: token, Owner: e.owner, Label: e.label, TTL: e.ttl.String(), Wait: e.wait.String(), Tokens: e.tokens}
	switch {
	case token != "" && !e.held:
		v.Place = e.create
	case token != "":
		v.Place = e.place
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.Encode(v) // cannot fail: there are only strings and numbers
	return strings.TrimSuffix(b.String(), "\n")
}

// parseEntry reads a key, and the value of a hold. A waiter's value is decoded when it is
// needed, since a queue may be long. An error matches ErrForeignKey.
func parseEntry(dir string, kv *mvccpb.KeyValue) (*entry, error) {
	key := string(kv.Key)
	kind, tag, id, ok := split(dir, key)
	if !ok || !bytes.HasPrefix(kv.Value, valueBegins) {
		return nil, foreign(dir)
	}
	e := &entry{
		key: key, id: id, held: kind == kindRead || kind == kindWrite,
		create: kv.CreateRevision, mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease), text: kv.Value,
	}
	if kind == kindRead || kind == kindReadWaiter {
		e.mode = store.Shared
	}
	e.keys = keysIn(dir, tag, id, e.mode)
	if e.held {
		return e, e.decode()
	}
	return e, nil
}

var valueBegins = fmt.Appendf(nil, `{"dlock":%d,`, format)

// decode reads the value, once. An error matches ErrForeignKey.
func (e *entry) decode() error {
	if e.text == nil {
		return nil
	}
	var v value
	err := json.Unmarshal(e.text, &v)
	if err == nil {
		e.ttl, err = time.ParseDuration(v.TTL)
	}
	if err == nil {
		e.wait, err = time.ParseDuration(v.Wait)
	}
	switch {
	case !e.held || err != nil:
	case v.Token == ownRevision:
		e.token = tokenAt(e.create)
	default:
		e.token, err = strconv.ParseUint(v.Token, 10, 64)
	}
	if err != nil {
		return foreign(e.keys.dir)
	}
	e.text, e.owner, e.label, e.tokens, e.place = nil, v.Owner, v.Label, v.Tokens, v.Place
	return nil
}

func tokenAt(revision int64) uint64 { return uint64(revision) << tokenShift }

// foreign names the lock and no id, which is not to be shown.
func foreign(dir string) error {
	return fmt.Errorf("etcd: %w: under %q", store.ErrForeignKey, dir)
}
