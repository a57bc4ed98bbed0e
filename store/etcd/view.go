package etcd

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/store"
)

// maxPromotions keeps a transaction below the server's limit of 128 operations, and
// of as many conditions, of which a promotion may have two; what is over it is for
// the next one.
const maxPromotions = 60

// view is all there is of one name at one revision. Its methods are the model of
// package store; they decide, and a transaction that compares what they built
// on carries it out.
type view struct {
	dir    string
	rev    int64
	holds  []*entry // oldest grant first
	queue  []*entry // head first
	buried map[string]bool

	kvs  map[string]*mvccpb.KeyValue // what it was parsed from
	sure bool                        // read from the server, not put together from events
}

func parseView(dir string, rev int64, kvs []*mvccpb.KeyValue) (*view, error) {
	v := &view{dir: dir, rev: rev, kvs: make(map[string]*mvccpb.KeyValue, len(kvs))}
	for _, kv := range kvs {
		v.kvs[string(kv.Key)] = kv
		if id, ok := strings.CutSuffix(strings.TrimPrefix(string(kv.Key), dir), "!"); ok {
			if v.buried == nil {
				v.buried = make(map[string]bool)
			}
			v.buried[id] = true
			continue
		}
		e, err := parseEntry(dir, kv)
		if err != nil {
			return nil, err
		}
		v.add(e)
	}
	v.sort()
	return v, nil
}

func (v *view) add(e *entry) {
	if e.held {
		v.holds = append(v.holds, e)
	} else {
		v.queue = append(v.queue, e)
	}
}

func (v *view) sort() {
	slices.SortFunc(v.holds, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.create, b.create))
	})
	slices.SortFunc(v.queue, func(a, b *entry) int { return cmp.Compare(a.create, b.create) })
}

func find(entries []*entry, id string) *entry {
	i := slices.IndexFunc(entries, func(e *entry) bool { return e.id == id })
	if i < 0 {
		return nil
	}
	return entries[i]
}

// verdict is what rules 2 and 3 say of a request.
type verdict struct {
	granted bool
	on      *entry // the hold of its owner that the grant builds on, if any
	fresh   bool   // with a new token, else with that of on
	upgrade bool   // refused as an upgrade
}

// verdict judges a request in a view in which nothing is left to promote.
func (v *view) verdict(e *entry) verdict {
	var own *entry // the owner's hold that counts most: exclusive, then the greatest token
	others, writer := false, false
	for _, h := range v.holds {
		switch {
		case h.owner != e.owner:
			others = true
			writer = writer || h.mode == store.Exclusive
		case own == nil || own.mode == store.Shared && (h.mode == store.Exclusive || h.token >= own.token):
			own = h
		}
	}
	switch {
	case own != nil && (own.mode == store.Exclusive || e.mode == store.Shared):
		return verdict{granted: true, on: own}
	case own != nil && others:
		return verdict{upgrade: true}
	case own != nil:
		return verdict{granted: true, on: own, fresh: true}
	case writer || others && e.mode == store.Exclusive:
		return verdict{}
	case len(v.queue) > 0 && v.queue[0].id != e.id:
		return verdict{}
	}
	return verdict{granted: true, fresh: true}
}

// promotion is a waiter to be granted.
type promotion struct {
	waiter *entry
	on     *entry // the hold at this revision that it builds on, if any
	token  string
}

// promotions are all that the model grants now, in order: from the head of the
// queue as far as rule 3 allows, and with each grant those requests of its owner
// that re-entry then allows. One transaction makes all of them.
func (v *view) promotions() (all []promotion) {
	next := &view{rev: v.rev, holds: slices.Clone(v.holds), queue: slices.Clone(v.queue)}
	tokens := make(map[string]string) // of those granted here
	offset := 0
	var grant func(w *entry, d verdict)
	grant = func(w *entry, d verdict) {
		p := promotion{waiter: w, on: d.on}
		switch {
		case d.fresh:
			p.token = newToken(offset)
			offset += w.tokens
		case tokens[d.on.id] != "":
			p.token = tokens[d.on.id]
		default:
			p.token = fixedToken(d.on.token)
		}
		if d.on != nil && tokens[d.on.id] != "" {
			p.on = nil // written by the same transaction
		}
		all = append(all, p)
		tokens[w.id] = p.token
		held := *w
		held.held = true
		if held.token = ^uint64(0) >> 1; !d.fresh { // a new one is the greatest
			held.token = d.on.token
		}
		next.holds = append(next.holds, &held)
		next.queue = slices.DeleteFunc(next.queue, func(e *entry) bool { return e.id == w.id })
		for _, other := range slices.Clone(next.queue) {
			if len(all) == maxPromotions {
				return // the others when they ask
			}
			if other.owner != w.owner || find(next.queue, other.id) == nil {
				continue
			}
			if d := next.verdict(other); d.granted {
				grant(other, d)
			}
		}
	}
	for len(next.queue) > 0 && offset+next.queue[0].tokens <= maxTokens && len(all) < maxPromotions {
		d := next.verdict(next.queue[0])
		if !d.granted {
			break
		}
		grant(next.queue[0], d)
	}
	return all
}

// written is the revision of the last write that is to be seen here.
func (v *view) written() (rev int64) {
	for _, e := range slices.Concat(v.holds, v.queue) {
		rev = max(rev, e.mod)
	}
	return rev
}

// count is how many holds an owner has.
func (v *view) count(owner string) (n int) {
	for _, h := range v.holds {
		if h.owner == owner {
			n++
		}
	}
	return n
}

// position is that of a waiter, from 1; 0: none.
func (v *view) position(id string) int {
	return slices.IndexFunc(v.queue, func(e *entry) bool { return e.id == id }) + 1
}

// heldBy is the label of a hold of another owner.
func (v *view) heldBy(owner string) string {
	for _, h := range v.holds {
		if h.owner != owner {
			return h.label
		}
	}
	return ""
}

// retry is when the holds in the way run out unless renewed, at the latest, and
// 2 ms more for each place behind the head, 40 ms at most. etcd looks for dead
// leases every half second.
func (v *view) retry(owner string, position int) time.Duration {
	wait := time.Millisecond
	for _, h := range v.holds {
		if h.owner != owner {
			wait = max(wait, h.ttl)
		}
	}
	return wait + time.Duration(min(max(position-1, 0), 20))*2*time.Millisecond
}
