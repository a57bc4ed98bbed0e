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
		if p, ok := parse(dir, string(kv.Key)); ok && p.kind == kindRefused {
			v.buried[p.id] = true
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

// allows is rule 2 for an owner with holds, and else rule 3 without the queue. An upgrade is refused if other
// owners hold.
func allows(holds []*entry, e *entry) (ok, refused bool) {
	own, others, conflict := ofOwner(holds, e.tag), false, false
	for _, h := range holds {
		if h.tag != e.tag {
			others, conflict = true, conflict || h.mode == store.Exclusive || e.mode == store.Exclusive
		}
	}
	switch {
	case own == nil:
		return !conflict, false
	case own.mode == store.Exclusive || e.mode == store.Shared:
		return true, false
	}
	return !others, others
}

// settled is what the model makes of a view: the waiters that it has granted by now, in order, and those that
// still wait. A waiter's own handle makes its hold, so there may be waiters that are granted and have no hold
// yet.
func (v *view) settled() (due, rest []*entry) {
	holds, rest := slices.Clone(v.holds), slices.Clone(v.queue)
	for len(rest) > 0 {
		i := 0
		if ok, _ := allows(holds, rest[0]); !ok {
			i = slices.IndexFunc(rest, func(e *entry) bool {
				ok, _ := allows(holds, e)
				return ok && ofOwner(holds, e.tag) != nil
			})
		}
		if i < 0 {
			break
		}
		due, holds = append(due, rest[i]), append(holds, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return due, rest
}

// verdict is what the model says of a request.
type verdict struct {
	granted bool
	own     *entry // the hold of its owner that the grant builds on, nil if there is none
	upgrade bool   // not granted: it is an upgrade, and other owners hold
	before  *entry // a waiter whose hold has to be made first
}

// judge says what becomes of a request that is no hold yet.
func (v *view) judge(e *entry) verdict {
	due, rest := v.settled()
	d := verdict{granted: true, own: ofOwner(v.holds, e.tag)}
	if index(due, e.id) < 0 {
		holds := append(slices.Clone(v.holds), due...)
		d.granted, d.upgrade = allows(holds, e)
		if ofOwner(holds, e.tag) == nil && len(rest) > 0 && rest[0].id != e.id {
			d.granted = false
		}
	}
	if d.granted && d.own != nil {
		return d
	}
	// Holds are made in the order of the queue, and those of its owner before a request builds on them.
	for _, w := range due {
		if w.id == e.id {
			break
		}
		first := d.granted && d.own == nil && (e.create == 0 || w.create < e.create)
		switch {
		case first, w.tag == e.tag && ofOwner(v.holds, w.tag) != nil:
			return verdict{before: w}
		case w.tag == e.tag: // its conditions say that no earlier waiter is left
			return verdict{before: due[0]}
		}
	}
	return d
}

// maxReaders keeps a transaction, of whose conditions a reader has two, below the server's limit of 128, of which a
// call that operations share takes maxTogether.
const maxReaders = 30

// leadingReaders are the waiters from the head of the queue that are granted together, as far as one transaction can
// make their holds: readers whose owners have no hold and wait once.
func (v *view) leadingReaders() []*entry {
	tokens, owners := 0, make(map[string]bool)
	for i, w := range v.queue {
		if w.mode == store.Exclusive || owners[w.tag] || ofOwner(v.holds, w.tag) != nil || i == maxReaders || w.decode() != nil {
			return v.queue[:i]
		}
		if tokens += w.tokens; tokens > maxTokens {
			return v.queue[:i]
		}
		owners[w.tag] = true
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
		if h.tag != e.tag && (e.mode == store.Exclusive || h.mode == store.Exclusive) {
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
	for _, h := range v.holds {
		if h.tag != e.tag {
			g.Retry, g.HeldBy = max(g.Retry, h.ttl), h.label
		}
	}
	g.Retry += time.Duration(min(max(g.Position-1, 0), 20)) * 2 * time.Millisecond
	return g
}
