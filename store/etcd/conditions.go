package etcd

import (
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// The conditions under which a transaction grants say which keys are there and which are not. They refer to no
// revision that was read before, except create revisions of keys that they also want to be there; so they hold
// in whatever data the server has.

// none is that there is no key from one to before another.
func none(from, to string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(from), "=", 0).WithRange(to)
}

// still is that a key is there, and the one that was created then; 0: that it is not there.
func still(key string, create int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", create)
}

// ours is that a key is that of this id, which only the value of one without an id says.
func (k idKeys) ours(key string) []clientv3.Cmp {
	if !k.lacksID(key) {
		return nil
	}
	return begins(key, valueBegins(k.tag, k.id))
}

// begins is that the value of a key begins with a text.
func begins(key, text string) []clientv3.Cmp {
	value := clientv3.Value(key)
	return []clientv3.Cmp{clientv3.Compare(value, ">", text), clientv3.Compare(value, "<", text+"~")}
}

// removeAll deletes all keys that this id may have, but for a tombstone.
func (k idKeys) removeAll() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(k.place()), clientv3.OpDelete(k.again()),
		clientv3.OpTxn(k.ours(k.from(kindWrite)), []clientv3.Op{clientv3.OpDelete(k.from(kindWrite))}, nil),
	}
}

// noForeign is that there is no key before those of holds and waiters, where version 1 had its own.
func (k idKeys) noForeign() clientv3.Cmp { return none(k.to(kindRefused), k.from(kindReadWaiter)) }

// noOwn is that the owner has no key of a kind.
func (k idKeys) noOwn(kind string) clientv3.Cmp {
	return none(k.from(kind)+"/"+k.tag+"/", k.from(kind)+"/"+k.tag+"0")
}

// noSibling is that no other request of the owner waits.
func (k idKeys) noSibling() (conditions []clientv3.Cmp) {
	for _, kind := range []string{kindReadWaiter, kindWriteWaiter} {
		owner := k.from(kind) + "/" + k.tag
		id := owner + "/" + k.id
		conditions = append(conditions, none(owner+"/", id), none(id+"0", owner+"0"))
	}
	return conditions
}

// look reads all there is of the name.
func (k idKeys) look() clientv3.Op { return clientv3.OpGet(k.dir, clientv3.WithPrefix()) }

// enter is the transaction that grants a new request on a free name, or else does otherwise: for an exclusive
// one there is neither hold nor waiter, for a shared one neither a waiter, nor an exclusive hold, nor one of
// its owner.
func (e *entry) enter(lease clientv3.LeaseID, otherwise clientv3.Op) clientv3.Op {
	conditions := []clientv3.Cmp{none(e.to(kindRefused), e.to(kindWrite)), still(e.refused(), 0)}
	if e.mode == store.Shared {
		conditions = []clientv3.Cmp{
			none(e.to(kindRefused), e.to(kindWriteWaiter)), none(e.from(kindWrite), e.to(kindWrite)),
			e.noOwn(kindRead), still(e.refused(), 0),
		}
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{e.put(e.first(), ownRevision, lease)}, []clientv3.Op{otherwise})
}

// take is the transaction that takes a place, and reads all there is after that. A re-entry or an upgrade never
// takes one.
func (e *entry) take(lease clientv3.LeaseID) clientv3.Op {
	look := []clientv3.Op{e.look()}
	return clientv3.OpTxn(begins(e.from(kindWrite), valueBegins(e.tag, "")), look, []clientv3.Op{clientv3.OpTxn(
		[]clientv3.Cmp{still(e.place(), 0), still(e.refused(), 0), e.noOwn(kindRead), e.noOwn(kindWrite)},
		[]clientv3.Op{e.put(e.place(), "", lease), e.look()}, look)})
}

// next is the transaction that makes the holds of the waiters at the head of the queue whose owners have none, with
// tokens in their order: several readers, or one waiter. No writer holds, no other waiter is earlier, and for a writer
// there is no reader.
func next(waiters ...*entry) clientv3.Op {
	head, offset := waiters[0], 0
	queue := clientv3.CreateRevision(head.from(kindReadWaiter)).WithRange(head.to(kindWriteWaiter))
	conditions := []clientv3.Cmp{
		head.noForeign(), none(head.from(kindWrite), head.to(kindWrite)), clientv3.Compare(queue, ">", head.create-1),
	}
	if len(waiters) > 1 {
		conditions = append(conditions, head.noOwn(kindWriteWaiter)) // it would be granted before the second
	}
	var then []clientv3.Op
	for _, e := range waiters {
		token := ownRevision
		if conditions = append(conditions, still(e.place(), e.create)); e.mode == store.Shared {
			conditions = append(conditions, e.noOwn(kindRead))
		} else {
			conditions = append(conditions, none(e.from(kindRead), e.to(kindRead)))
		}
		if offset > 0 {
			token += " + " + strconv.Itoa(offset)
		}
		then = append(then, clientv3.OpDelete(e.place()), e.put(e.first(), token, e.lease))
		offset += e.Tokens
	}
	return clientv3.OpTxn(conditions, then, []clientv3.Op{head.look()})
}

// again is the transaction that makes a hold of an owner that has one, own: a re-entry, with its token,
// or an upgrade, with a new one. It reads all there is after that, which says how many holds the owner has.
func (v *view) again(e, own *entry, lease clientv3.LeaseID) (op clientv3.Op, token uint64) {
	conditions := append(own.ours(own.key), still(own.key, own.create),
		still(e.again(), 0), still(e.refused(), 0), still(e.place(), e.create))
	token, text := own.token, strconv.FormatUint(own.token, 10)
	if own.mode == store.Shared { // an exclusive hold of the owner that there is by now counts more
		conditions = append(conditions, none(e.from(kindWrite), e.to(kindWrite)))
	}
	if own.mode == store.Shared && e.mode == store.Exclusive {
		token, text = 0, ownRevision
		tag := e.from(kindRead) + "/" + e.tag
		conditions = append(conditions, e.noForeign(), none(e.from(kindRead), tag+"/"), none(tag+"0", e.to(kindRead)))
		// While the first writer waits no reader behind it is due.
		if i := slices.IndexFunc(v.queue, func(w *entry) bool { return w.mode == store.Exclusive }); i >= 0 {
			conditions = append(conditions, still(v.queue[i].key, v.queue[i].create))
		}
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{
		clientv3.OpDelete(e.place()), e.put(e.again(), text, lease), e.look(),
	}, []clientv3.Op{e.look()}), token
}
