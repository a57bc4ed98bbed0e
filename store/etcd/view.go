package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/store"
)

// view is all there is of one name at one revision. Its methods are the model of
// package store. They decide what to try; the conditions of a transaction decide
// whether it happens.
type view struct {
	dir    string
	rev    int64
	holds  []*entry // oldest grant first
	queue  []*entry // head first
	buried map[string]bool
}

func parseView(dir string, rev int64, kvs []*mvccpb.KeyValue) (*view, error) {
	v := &view{dir: dir, rev: rev}
	for _, kv := range kvs {
		if kind, _, id, ok := split(dir, string(kv.Key)); ok && kind == kindRefused {
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

func find(entries []*entry, id string) *entry {
	i := slices.IndexFunc(entries, func(e *entry) bool { return e.id == id })
	if i < 0 {
		return nil
	}
	return entries[i]
}

// ofOwner is the hold of an owner that counts most: an exclusive one, then the one with
// the greatest token.
func ofOwner(holds []*entry, tag string) (own *entry) {
	for _, h := range holds {
		if h.keys.tag == tag && (own == nil || own.mode == store.Shared && (h.mode == store.Exclusive || h.token >= own.token)) {
			own = h
		}
	}
	return own
}

// reenters is rule 2: whether the owner's holds allow a request, and as an upgrade.
func reenters(holds []*entry, e *entry) (allowed, upgrade bool) {
	own := ofOwner(holds, e.keys.tag)
	switch {
	case own == nil:
		return false, false
	case own.mode == store.Exclusive || e.mode == store.Shared:
		return true, false
	}
	for _, h := range holds {
		if h.keys.tag != e.keys.tag {
			return false, true
		}
	}
	return true, true
}

// compatible is rule 3 without the queue, for an owner without holds.
func compatible(holds []*entry, e *entry) bool {
	for _, h := range holds {
		if h.keys.tag != e.keys.tag && (h.mode == store.Exclusive || e.mode == store.Exclusive) {
			return false
		}
	}
	return true
}

// settled is what the model makes of a view: the waiters that it has granted by now,
// in order, and those that still wait. A waiter's own handle makes its hold, so there may
// be waiters that are granted and have no hold yet.
func (v *view) settled() (due, rest []*entry) {
	holds, rest := slices.Clone(v.holds), slices.Clone(v.queue)
	grant := func(i int) {
		due, holds = append(due, rest[i]), append(holds, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	// Waiters ahead of the place that a hold was granted from were granted before it.
	var from int64
	for _, h := range v.holds {
		if from = max(from, h.place); h.place == 0 {
			from = v.rev + 1
		}
	}
	head := func() bool {
		e := rest[0]
		if ofOwner(holds, e.keys.tag) != nil {
			allowed, _ := reenters(holds, e)
			return allowed
		}
		return compatible(holds, e)
	}
	for len(rest) > 0 && rest[0].create < from && head() {
		grant(0)
	}
	for len(rest) > 0 {
		sibling := slices.IndexFunc(rest, func(e *entry) bool {
			allowed, _ := reenters(holds, e)
			return allowed
		})
		switch {
		case sibling >= 0:
			grant(sibling)
		case head():
			grant(0)
		default:
			return due, rest
		}
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
	if len(v.queue) == 0 {
		return v.decide(v.holds, nil, e)
	}
	due, rest := v.settled()
	own := ofOwner(v.holds, e.keys.tag)
	d := verdict{granted: true, own: own}
	if find(due, e.id) == nil {
		d = v.decide(append(slices.Clone(v.holds), due...), rest, e)
	}
	// Holds are made in the order of the queue, and those of its owner before a request
	// builds on them.
	for _, w := range due {
		if w.id == e.id {
			break
		}
		first := d.granted && own == nil && (e.create == 0 || w.create < e.create)
		if first || w.keys.tag == e.keys.tag {
			return verdict{before: w}
		}
	}
	return d
}

func (v *view) decide(holds, rest []*entry, e *entry) verdict {
	if own := ofOwner(holds, e.keys.tag); own != nil {
		allowed, upgrade := reenters(holds, e)
		return verdict{granted: allowed, own: own, upgrade: upgrade && !allowed}
	}
	first := len(rest) == 0 || rest[0].id == e.id
	return verdict{granted: first && compatible(holds, e)}
}

// ahead are the keys that have to go before a waiter can be granted: those of the holds in
// its way, or only that of the waiter before it, so that a hand-over wakes one.
func (v *view) ahead(e *entry) map[string]bool {
	keys := make(map[string]bool)
	if ofOwner(v.holds, e.keys.tag) == nil {
		for i := len(v.queue) - 1; i >= 0; i-- {
			if v.queue[i].create < e.create {
				keys[v.queue[i].key] = true
				return keys
			}
		}
	}
	for _, h := range v.holds {
		if h.keys.tag != e.keys.tag && (e.mode == store.Exclusive || h.mode == store.Exclusive) {
			keys[h.key] = true
		}
	}
	return keys
}

// count is how many holds an owner has.
func (v *view) count(tag string) (n int) {
	for _, h := range v.holds {
		if h.keys.tag == tag {
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
func (v *view) heldBy(tag string) string {
	for _, h := range v.holds {
		if h.keys.tag != tag {
			return h.label
		}
	}
	return ""
}

// retry is when the holds in the way run out unless renewed, at the latest, and
// 2 ms more for each place behind the head, 40 ms at most. etcd looks for dead
// leases every half second.
func (v *view) retry(tag string, position int) time.Duration {
	wait := time.Millisecond
	for _, h := range v.holds {
		if h.keys.tag != tag {
			wait = max(wait, h.ttl)
		}
	}
	return wait + time.Duration(min(max(position-1, 0), 20))*2*time.Millisecond
}
