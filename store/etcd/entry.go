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

// format is the version of keys and values. Version 1 had its keys elsewhere.
const format = 2

// ownRevision stands for the token in the value of a hold whose token follows from the create revision of its
// key, which is not known before the key is written.
const ownRevision = "create_revision * 65536"

// entry is a hold or a waiter.
type entry struct {
	idKeys
	key    string // hold or place
	id     string
	held   bool
	mode   store.Mode
	create int64 // revision of the key's first write, which for a waiter is its position
	mod    int64 // revision of the key's last write
	lease  clientv3.LeaseID
	text   []byte // the value; nil once it is decoded

	owner  string // its first six characters
	token  uint64 // of a hold
	tokens int    // how many to reserve
	ttl    time.Duration
	wait   time.Duration
	label  string
}

// value is an entry as its key has it.
type value struct {
	Format int    `json:"dlock"`
	Token  string `json:"token,omitempty"`
	Owner  string `json:"owner"`
	Label  string `json:"label,omitempty"`
	TTL    string `json:"ttl"`
	Wait   string `json:"wait_ttl"`
	Tokens int    `json:"tokens"`
}

func newEntry(k idKeys, req store.Request) *entry {
	return &entry{
		idKeys: k, key: k.place, id: req.ID, mode: req.Mode, owner: store.Short(req.Owner), tokens: req.Tokens,
		ttl: req.TTL, wait: req.WaitTTL, label: req.Label,
	}
}

// becomes is the hold that a transaction has made of a request, with its own token if token is 0.
func (e *entry) becomes(revision int64, token uint64, lease clientv3.LeaseID) *entry {
	h := *e
	h.key, h.held, h.create, h.mod, h.lease = e.hold, true, revision, revision, lease
	if h.token = token; token == 0 {
		h.token = tokenAt(revision)
	}
	return &h
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
	text, _ := json.Marshal(value{format, token, e.owner, e.label, e.ttl.String(), e.wait.String(), e.tokens}) // cannot fail
	return string(text)
}

// parseEntry reads a key, and the value of a hold. A waiter's value is decoded when it is needed, since a queue
// may be long. An error matches ErrForeignKey.
func parseEntry(dir string, kv *mvccpb.KeyValue) (*entry, error) {
	p, ok := parse(dir, string(kv.Key))
	if !ok || !bytes.HasPrefix(kv.Value, valueBegins) {
		return nil, foreign(dir)
	}
	e := &entry{
		idKeys: p.idKeys, key: string(kv.Key), id: p.id, held: !p.waits(), mode: p.mode,
		create: kv.CreateRevision, mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease), text: kv.Value,
	}
	if e.held {
		return e, e.decode()
	}
	return e, nil
}

var valueBegins = fmt.Appendf(nil, `{"dlock":%d,`, format)

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
