package etcd

import (
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
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), ">", text), clientv3.Compare(clientv3.Value(key), "<", text+"~")}
}

// removeAll deletes all keys that this id may have, but for a tombstone.
func (k idKeys) removeAll() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpDelete(k.place()), clientv3.OpDelete(k.again())}
	if k.mode == store.Exclusive {
		ops = append(ops, clientv3.OpTxn(k.ours(k.first()), []clientv3.Op{clientv3.OpDelete(k.first())}, nil))
	}
	return ops
}

// from and to bound the keys of a kind.
func (k idKeys) from(kind string) string { return k.dir + kind }
func (k idKeys) to(kind string) string   { return k.dir + kind + "0" } // the character behind a slash

// noForeign is that there is no key before those of holds and waiters, where version 1 had its own.
func (k idKeys) noForeign() clientv3.Cmp { return none(k.to(kindRefused), k.from(kindReadWaiter)) }

// noOwn is that the owner has no hold of a kind.
func (k idKeys) noOwn(kind string) clientv3.Cmp {
	return none(k.from(kind)+"/"+k.tag+"/", k.from(kind)+"/"+k.tag+"0")
}

// look reads all there is of the name.
func (k idKeys) look() clientv3.Op { return clientv3.OpGet(k.dir, clientv3.WithPrefix()) }

// enter is the transaction that grants a new request on a free name, or else does otherwise: for an exclusive
// one there is neither hold nor waiter, for a shared one neither a waiter, nor an exclusive hold, nor one of
// its owner.
func (k idKeys) enter(e *entry, lease clientv3.LeaseID, otherwise clientv3.Op) clientv3.Op {
	conditions := []clientv3.Cmp{none(k.to(kindRefused), k.to(kindWrite)), still(k.refused(), 0)}
	if e.mode == store.Shared {
		conditions = []clientv3.Cmp{
			none(k.to(kindRefused), k.to(kindWriteWaiter)), none(k.from(kindWrite), k.to(kindWrite)),
			k.noOwn(kindRead), still(k.refused(), 0),
		}
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{e.put(k.first(), ownRevision, lease)}, []clientv3.Op{otherwise})
}

// take is the transaction that takes a place, and reads all there is after that. A re-entry or an upgrade never
// takes one.
func (k idKeys) take(e *entry, lease clientv3.LeaseID) clientv3.Op {
	look := []clientv3.Op{k.look()}
	return clientv3.OpTxn(begins(k.from(kindWrite), valueBegins(k.tag, "")), look, []clientv3.Op{clientv3.OpTxn(
		[]clientv3.Cmp{still(k.place(), 0), still(k.refused(), 0), k.noOwn(kindRead), k.noOwn(kindWrite)},
		[]clientv3.Op{e.put(k.place(), "", lease), k.look()}, look)})
}

// earliest is that no writer holds, and that no waiter is earlier.
func (k idKeys) earliest(e *entry) []clientv3.Cmp {
	return []clientv3.Cmp{
		k.noForeign(), none(k.from(kindWrite), k.to(kindWrite)),
		clientv3.Compare(clientv3.CreateRevision(k.from(kindReadWaiter)), ">", e.create-1).WithRange(k.to(kindWriteWaiter)),
	}
}

// next is the transaction that makes the hold of a waiter whose owner has no hold: when there is no earlier
// waiter, and for a writer no hold, for a reader no exclusive one.
func (k idKeys) next(e *entry, lease clientv3.LeaseID) clientv3.Op {
	conditions := append(k.earliest(e), still(k.place(), e.create))
	if e.mode == store.Exclusive {
		conditions = append(conditions, none(k.from(kindRead), k.to(kindRead)))
	} else {
		conditions = append(conditions, k.noOwn(kindRead))
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{
		clientv3.OpDelete(k.place()), e.put(k.first(), ownRevision, lease),
	}, []clientv3.Op{k.look()})
}

// nextReaders is the transaction that makes the holds of the leading readers, with tokens in their order.
func (v *view) nextReaders(readers []*entry) clientv3.Op {
	k, offset := readers[0].idKeys, 0
	conditions := k.earliest(readers[0])
	var then []clientv3.Op
	for _, e := range readers {
		conditions = append(conditions, still(e.place(), e.create), e.noOwn(kindRead))
		then = append(then, clientv3.OpDelete(e.place()), e.put(e.first(), ownRevision+" + "+strconv.Itoa(offset), e.lease))
		offset += e.tokens
	}
	return clientv3.OpTxn(conditions, then, []clientv3.Op{k.look()})
}

// again is the transaction that makes a hold of an owner that has one, own: a re-entry, with its token,
// or an upgrade, with a new one.
func (v *view) again(e, own *entry, lease clientv3.LeaseID) (clientv3.Op, uint64) {
	k := e.idKeys
	conditions := append(own.ours(own.key), still(own.key, own.create), still(k.again(), 0), still(k.refused(), 0), still(k.place(), e.create))
	token, text := own.token, strconv.FormatUint(own.token, 10)
	if own.mode == store.Shared { // an exclusive hold of the owner that there is by now counts more
		conditions = append(conditions, none(k.from(kindWrite), k.to(kindWrite)))
	}
	if own.mode == store.Shared && e.mode == store.Exclusive {
		token, text = 0, ownRevision
		tag := k.from(kindRead) + "/" + k.tag
		conditions = append(conditions, k.noForeign(), none(k.from(kindRead), tag+"/"), none(tag+"0", k.to(kindRead)))
		// While the first writer waits no reader behind it is due.
		for _, w := range v.queue {
			if w.mode == store.Exclusive {
				conditions = append(conditions, still(w.key, w.create))
				break
			}
		}
	}
	return clientv3.OpTxn(conditions, []clientv3.Op{
		clientv3.OpDelete(k.place()), e.put(k.again(), text, lease),
	}, []clientv3.Op{k.look()}), token
}
