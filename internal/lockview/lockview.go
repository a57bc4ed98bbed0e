// Package lockview shows the locks of a store to people: which there are, which owner
// holds each, which wait, and for how long.
package lockview

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock/store"
)

// Client is what a view asks. *dlock.Client is one.
type Client interface {
	Inspect(ctx context.Context, name string) (store.State, error)
	List(ctx context.Context) ([]string, error)
	Break(ctx context.Context, name string) (int, error)
}

// Lock is one name with its holders and waiters.
type Lock struct {
	Name    string  `json:"name"` // as Show shows it
	Key     string  `json:"key"`  // the name in base64url, for programs
	Holders []Entry `json:"holders"`
	Queue   []Entry `json:"queue"`
	Error   string  `json:"error,omitempty"` // why it could not be inspected
}

// Entry is one holder or waiter.
type Entry struct {
	ID        string `json:"id"` // its first six characters, as those of Owner
	Owner     string `json:"owner"`
	Mode      string `json:"mode"`
	Token     uint64 `json:"token,string,omitempty"` // a string, because JavaScript counts to 2^53 only
	Label     string `json:"label"`
	Remaining int64  `json:"remaining_ms"` // until its deadline, which renewals move
	Age       int64  `json:"age_ms"`       // since its grant, or its place; if the store does not know, since this view saw it
}

// Show returns a name as people can read it: quoted if it has bytes that do not print.
func Show(name string) string {
	printable := utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	if printable && name == strings.TrimSpace(name) && name != "" && name[0] != '"' {
		return name
	}
	return strconv.Quote(name)
}

// Key returns the name in base64url.
func Key(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// NameOf returns the name of a key.
func NameOf(key string) (string, error) {
	name, err := base64.RawURLEncoding.DecodeString(key)
	return string(name), err
}

// Matching returns the names that contain the text, sorted. The case of letters does not
// matter.
func Matching(names []string, text string) []string {
	text = strings.ToLower(text)
	found := make([]string, 0, len(names))
	for _, name := range names {
		if text == "" || strings.Contains(strings.ToLower(name), text) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// StateOf is a text that changes with the holders.
func StateOf(holders []Entry) string {
	sum := sha256.New()
	for _, e := range holders {
		fmt.Fprintln(sum, e.ID, e.Token)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

const (
	atOnce    = 32               // calls of Inspect
	forgotten = 10 * time.Minute // after which an entry that was not seen is forgotten
)

// View is what one process has seen of the locks. It is safe for concurrent use.
type View struct {
	client Client

	mu     sync.Mutex
	seen   map[string]sighting
	pruned time.Time
}

type sighting struct{ first, last time.Time }

// New returns a view of the client's store.
func New(client Client) *View {
	return &View{client: client, seen: make(map[string]sighting), pruned: time.Now()}
}

// Names returns the names in use that contain the text, sorted.
func (v *View) Names(ctx context.Context, text string) ([]string, error) {
	names, err := v.client.List(ctx)
	if err != nil {
		return nil, err
	}
	return Matching(names, text), nil
}

// Locks inspects names, some at once. A name that cannot be inspected has an Error. The
// error is that of ctx.
func (v *View) Locks(ctx context.Context, names []string) ([]Lock, error) {
	locks := make([]Lock, len(names))
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, name := range names {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			lock, err := v.Lock(ctx, name)
			if err != nil {
				lock = Lock{Name: Show(name), Key: Key(name), Holders: []Entry{}, Queue: []Entry{}, Error: err.Error()}
			}
			locks[i] = lock
		})
	}
	wg.Wait()
	return locks, ctx.Err()
}

// Lock inspects one name.
func (v *View) Lock(ctx context.Context, name string) (Lock, error) {
	state, err := v.client.Inspect(ctx, name)
	if err != nil {
		return Lock{}, err
	}
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.prune(now)
	return Lock{
		Name: Show(name), Key: Key(name),
		Holders: v.entries(name, "holds", state.Holders, now),
		Queue:   v.entries(name, "waits", state.Queue, now),
	}, nil
}

// entries turns entries of the store into those of the view. v.mu is held.
func (v *View) entries(name, role string, from []store.Entry, now time.Time) []Entry {
	entries := make([]Entry, len(from))
	for i, e := range from {
		key := strings.Join([]string{name, role, e.ID, strconv.FormatUint(e.Token, 10)}, "\x00")
		s, ok := v.seen[key]
		if !ok {
			s.first = now
		}
		s.last = now
		v.seen[key] = s
		entries[i] = Entry{
			ID: clean(e.ID), Owner: clean(e.Owner), Mode: e.Mode.String(), Token: e.Token, Label: clean(e.Label),
			Remaining: e.Remaining.Milliseconds(), Age: max(e.Age, now.Sub(s.first)).Milliseconds(),
		}
	}
	return entries
}

// clean makes text of another process UTF-8, because it is shown as JSON too.
func clean(text string) string { return strings.ToValidUTF8(text, "?") }

// prune forgets what was not seen for long. v.mu is held.
func (v *View) prune(now time.Time) {
	if now.Sub(v.pruned) < forgotten {
		return
	}
	v.pruned = now
	for key, s := range v.seen {
		if now.Sub(s.last) > forgotten {
			delete(v.seen, key)
		}
	}
}
