package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/store"
)

// view is all there is of one name at one revision. Its methods are the model of package store. They decide
// what to try; the conditions of a transaction decide whether it happens.
type view struct {
	dir    string
	rev    int64
	holds  []*entry // oldest grant first
	queue  []*entry // head first
	buried map[string]bool
}

func parseView(dir string, rev int64, kvs []*mvccpb.KeyValue) (*view, error) {
	v := &view{dir: dir, rev: rev, buried: make(map[string]bool)}
	for _, kv := range kvs {
		if k, kind, ok := parse(dir, string(kv.Key)); ok && kind == kindRefused {
			v.buried[k.id] = true
			continue
		}
		e, err := parseEntry(dir, kv)
		if err != nil {
			return nil, err
		}
		if e.held {
			v.holds = append(v.holds, e)
		} else {
			v.queue = append(v.queue, e)
		}
	}
	slices.SortFunc(v.holds, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.create, b.create))
	})
	slices.SortFunc(v.queue, func(a, b *entry) int { return cmp.Compare(a.create, b.create) })
	return v, nil
}

func index(entries []*entry, id string) int {
	return slices.IndexFunc(entries, func(e *entry) bool { return e.id == id })
}

func find(entries []*entry, id string) *entry {
	if i := index(entries, id); i >= 0 {
		return entries[i]
	}
	return nil
}

// ofOwner is the hold of an owner that counts most: an exclusive one, then the one with the greatest token.
func ofOwner(holds []*entry, tag string) (own *entry) {
	for _, h := range holds {
		if h.tag == tag && (own == nil || own.mode == store.Shared && (h.mode == store.Exclusive || h.token >= own.token)) {
			own = h
		}
	}
	return own
}

// holdsOf is how many holds the owner of a hold has, with that one and those that are due.
func (v *view) holdsOf(h *entry) int {
	n := 1
	due, _ := v.grants(nil)
	for _, other := range slices.Concat(v.holds, due) {
		if other.tag == h.tag && other.id != h.id {
			n++
		}
	}
	return n
}

// blocks reports whether a hold is of another owner and not compatible with a request.
func (h *entry) blocks(e *entry) bool {
	return h.tag != e.tag && (h.mode == store.Exclusive || e.mode == store.Exclusive)
}

// allows is rule 2 for an owner with holds, and else rule 3 without the queue.
func allows(holds []*entry, e *entry) bool {
	own := ofOwner(holds, e.tag)
	return own != nil && own.mode == store.Exclusive ||
		!slices.ContainsFunc(holds, func(h *entry) bool { return h.blocks(e) })
}

// grants are the requests that the model has granted and that have no hold yet, in the order of their grants: there may
// be several, for a waiter's own handle makes its hold. Waiters that build on a hold of their owner come before the head of
// the queue, and e comes last if it has no place; it may be nil. Upgrade: e is refused as one.
func (v *view) grants(e *entry) (all []*entry, upgrade bool) {
	holds, rest := slices.Clone(v.holds), slices.Clone(v.queue)
	grant := func(i int) {
		holds = append(holds, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	build := func(mine func(*entry) bool) {
		for i := 0; i < len(rest); i++ {
			if w := rest[i]; mine(w) && allows(holds, w) {
				grant(i)
				i = -1 // the new hold may allow one that was passed over
			}
		}
	}
	owns := func(w *entry) bool { return ofOwner(holds, w.tag) != nil }
	build(owns)
	for len(rest) > 0 && allows(holds, rest[0]) {
		head := rest[0]
		grant(0)
		build(func(w *entry) bool { return w.tag == head.tag })
	}
	if e != nil && index(v.queue, e.id) < 0 && e.create == 0 && !v.buried[e.id] {
		first := len(rest) == 0
		rest = append(rest, e)
		build(func(w *entry) bool { return w == e && (first || owns(w)) })
	}
	upgrade = e != nil && index(rest, e.id) >= 0 && e.mode == store.Exclusive && owns(e)
	return holds[len(v.holds):], upgrade
}

// due is whose hold is to be made next, nil if nobody is granted. Holds are made in the order of their grants, but that
// of e, which may be nil, comes first if it is a re-entry with the token of the hold that its owner has.
func (v *view) due(e *entry) *entry {
	grants, _ := v.grants(e)
	if len(grants) == 0 {
		return nil
	}
	if e != nil {
		own, i := ofOwner(v.holds, e.tag), index(grants, e.id)
		upgrades := func(w *entry) bool { return w.tag == e.tag && w.mode == store.Exclusive && own.mode == store.Shared }
		if own != nil && i >= 0 && !slices.ContainsFunc(grants[:i+1], upgrades) {
			return grants[i]
		}
	}
	return grants[0]
}

// maxReaders keeps a transaction, of whose conditions a reader has two, below the server's limit of 128, of which a
// call that operations share takes maxTogether.
const maxReaders = 30

// leadingReaders are the waiters from the head of the queue that are granted together, as far as one transaction can
// make their holds: readers whose owners have no hold and wait once. If the first one's owner waits for an upgrade, that
// is granted before the second.
func (v *view) leadingReaders() []*entry {
	most, tokens, owners := maxReaders, 0, make(map[string]bool)
	upgrades := func(w *entry) bool { return w.tag == v.queue[0].tag && w.mode == store.Exclusive }
	if slices.ContainsFunc(v.queue, upgrades) {
		most = 1
	}
	for i, w := range v.queue {
		again := owners[w.tag] || ofOwner(v.holds, w.tag) != nil
		if again || w.mode == store.Exclusive || i == most || w.decode() != nil || tokens+w.Tokens > maxTokens {
			return v.queue[:i]
		}
		tokens, owners[w.tag] = tokens+w.Tokens, true
	}
	return v.queue
}

// ahead are the keys that have to go before a waiter can be granted: those of the holds in its way, or only
// that of the waiter before it, so that a hand-over wakes one.
func (v *view) ahead(e *entry) map[string]bool {
	keys := make(map[string]bool)
	if i := index(v.queue, e.id); i > 0 && ofOwner(v.holds, e.tag) == nil {
		keys[v.queue[i-1].key] = true
		return keys
	}
	for _, h := range v.holds {
		if h.blocks(e) {
			keys[h.key] = true
		}
	}
	return keys
}

// answer is what a request is told that is not held: its position, until when the holds in its way run out
// unless renewed, and the label of one of them. Each place behind the head adds 2 ms, 40 ms at most, so that
// waiters do not ask all at once.
func (v *view) answer(e *entry) store.Grant {
	g := store.Grant{Position: index(v.queue, e.id) + 1, Retry: time.Millisecond}
	g.Token = tokenAt(v.rev) | (maxTokens - 1)
	for _, h := range v.holds {
		if h.tag != e.tag {
			g.Retry, g.HeldBy = max(g.Retry, h.ttl), h.Label
		}
	}
	g.Retry += time.Duration(min(max(g.Position-1, 0), 20)) * 2 * time.Millisecond
	return g
}
