package etcd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// tokenShift leaves room for a span of tokens at each revision: the token of a
// hold is the revision of the transaction that made it, shifted.
const (
	tokenShift = 16
	maxTokens  = 1 << tokenShift
)

// format begins every value.
const format = "dlock1"

// entry is a hold or a waiter. What is in its value says which, and who.
type entry struct {
	key    string
	id     string
	create int64 // revision of its first write, which for a waiter is its position
	mod    int64 // revision of its last write
	lease  clientv3.LeaseID

	held   bool
	mode   store.Mode
	owner  string
	token  uint64 // of a hold
	tokens int    // to reserve when it is granted
	ttl    time.Duration
	wait   time.Duration
	label  string
}

func newEntry(key string, req store.Request) *entry {
	return &entry{
		key: key, id: req.ID, mode: req.Mode, owner: req.Owner, tokens: req.Tokens,
		ttl: req.TTL, wait: req.WaitTTL, label: req.Label,
	}
}

// request is what an entry was asked for by, as far as it says so.
func (e *entry) request(ref store.Ref) store.Request {
	return store.Request{
		Name: ref.Name, Owner: e.owner, ID: e.id, Mode: e.mode, TTL: ref.TTL, WaitTTL: e.wait,
		Tokens: e.tokens, Label: e.label,
	}
}

// fixedToken and newToken say which token a hold gets: a number, or, with an at sign, an
// offset to that of the transaction that writes it, which is not known before.
func fixedToken(token uint64) string    { return strconv.FormatUint(token, 10) }
func newToken(offset int) string        { return "@" + strconv.Itoa(offset) }
func (e *entry) asHold(t string) string { return e.value("h", t) }
func (e *entry) asWaiter() string       { return e.value("w", "0") }

func (e *entry) value(state, token string) string {
	mode := "x"
	if e.mode == store.Shared {
		mode = "s"
	}
	return strings.Join([]string{
		format, state, mode, e.owner, token, strconv.Itoa(e.tokens),
		strconv.FormatInt(int64(e.ttl), 10), strconv.FormatInt(int64(e.wait), 10), e.label,
	}, " ")
}

// parseEntry reads a key and its value. An error matches ErrForeignKey.
func parseEntry(dir string, kv *mvccpb.KeyValue) (*entry, error) {
	e := &entry{
		key: string(kv.Key), create: kv.CreateRevision, mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease),
	}
	e.id = strings.TrimPrefix(e.key, dir)
	f := strings.SplitN(string(kv.Value), " ", 9)
	if len(f) != 9 || f[0] != format || len(e.id) != 32 {
		return nil, foreign(e.key)
	}
	var err error
	number := func(text string) int64 {
		n, wrong := strconv.ParseInt(text, 10, 64)
		if wrong != nil || n < 0 {
			err = foreign(e.key)
		}
		return n
	}
	e.held = f[1] == "h"
	if f[2] == "s" {
		e.mode = store.Shared
	}
	e.owner, e.label = f[3], f[8]
	if offset, ok := strings.CutPrefix(f[4], "@"); ok {
		e.token = tokenAt(e.mod) + uint64(number(offset))
	} else {
		e.token = uint64(number(f[4]))
	}
	e.tokens = int(number(f[5]))
	e.ttl, e.wait = time.Duration(number(f[6])), time.Duration(number(f[7]))
	if f[1] != "h" && f[1] != "w" || f[2] != "x" && f[2] != "s" || e.owner == "" {
		err = foreign(e.key)
	}
	return e, err
}

func tokenAt(revision int64) uint64 { return uint64(revision) << tokenShift }

// foreign names the key up to the id, which is not to be shown.
func foreign(key string) error {
	dir, _, _ := cutLast(key, "/")
	return fmt.Errorf("etcd: %w: under %q", store.ErrForeignKey, dir)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
