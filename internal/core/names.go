package core

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// shard guards what this process knows of its names. Names are spread over shards
// so that distinct names do not contend.
type shard struct {
	mu    sync.Mutex
	names map[string]*nameState
	calls request.Counter // lock calls and unlocks under way, for Close to wait for
}

// hashSeed is one for all clients: they spread names alike, which harms nobody. It
// differs in each process, so names cannot be chosen to meet in one shard.
var hashSeed = maphash.MakeSeed()

func (c *Client) shard(name string) *shard {
	return &c.shards[maphash.String(hashSeed, name)%uint64(len(c.shards))]
}

// nameState is one name in this process. It exists while a lock call is under way
// or a handle is not unlocked; a free name leaves nothing behind.
type nameState struct {
	client *Client
	shard  *shard
	name   string

	// A name has one owner nearly always, so the map is made for the second one.
	owner  *ownerState           // one of the owners, or nil
	others map[Owner]*ownerState // nil before there was a second one

	queue      localqueue.Queue
	background []*place  // that ask for the front of the queue
	granted    []*place  // the holds at the store, newest last
	sole       [1]*place // memory for granted
}

// ownerState is one owner's standing on one name: what it holds, and how many of
// its calls are under way.
type ownerState struct {
	name  *nameState
	owner Owner
	refs  int // lock calls under way, and handles not unlocked

	identity *identity // by which the store knows the owner; nil before it is needed

	// After a local hand-over the store knows the hold by another token than its owner.
	storeToken, ownToken uint64

	holds   []*ownerHold
	waiters []*Call  // in the queue
	sole    struct { // memory for the first of each
		hold   [1]*ownerHold
		waiter [1]*Call
	}
	live int32 // handles that hold
	lost int32 // delivered handles of lost holds, not unlocked yet
}

// identity is an owner as the store knows it. A hold may pass from one owner to
// another inside the process only while nothing but the hold was asked for under
// its identity: else that would be granted as a re-entry of the other owner.
type identity struct {
	id       string
	requests int // acquisition ids that were asked for under it
}

// enter counts one call of an owner in. The memory of the call serves for the owner's
// state, but not for the name's: that is shared with calls that may outlast this one,
// and would keep this call's memory for as long as the name is in use. The shard is
// locked.
func (a *Call) enter(sh *shard) {
	name, owner := a.Config.Name, a.Owner
	n := sh.names[name]
	if n == nil {
		if sh.names == nil {
			sh.names = make(map[string]*nameState)
		}
		n = &nameState{client: a.Client, shard: sh, name: name}
		n.granted = n.sole[:0]
		sh.names[name] = n
	}
	o := n.find(owner)
	if o == nil {
		o = &a.ownerMemory
		o.name, o.owner = n, owner
		o.holds, o.waiters = o.sole.hold[:0], o.sole.waiter[:0]
		n.add(o)
	}
	o.refs++
	a.name, a.owner = n, o
}

// newest returns the hold that was granted last, or nil.
func (n *nameState) newest() *place {
	if len(n.granted) == 0 {
		return nil
	}
	return n.granted[len(n.granted)-1]
}

// find returns the state of an owner, or nil. It takes constant time, because thousands
// of readers may hold one name.
func (n *nameState) find(owner Owner) *ownerState {
	if n.owner != nil && n.owner.owner == owner {
		return n.owner
	}
	return n.others[owner]
}

// add enters an owner that find has not found.
func (n *nameState) add(o *ownerState) {
	switch {
	case n.owner == nil:
		n.owner = o
		return
	case n.others == nil:
		n.others = make(map[Owner]*ownerState)
	}
	n.others[o.owner] = o
}

// count returns how many owners are here.
func (n *nameState) count() int {
	if n.owner == nil {
		return len(n.others)
	}
	return 1 + len(n.others)
}

// leave counts one call or handle out. The shard is locked.
func (o *ownerState) leave() {
	if o.refs--; o.refs > 0 {
		return
	}
	n := o.name
	if n.owner == o {
		n.owner = nil
	} else {
		delete(n.others, o.owner)
	}
	if n.count() == 0 {
		delete(n.shard.names, n.name)
	}
}

// Reenter gives h a share in a hold that owner has on the name in this mode. It
// reports false if the owner has none, which a Call then finds out about.
func (c *Client) Reenter(ctx context.Context, cfg *LockConfig, owner Owner, mode store.Mode, h *Handle) (bool, error) {
	over := ended(ctx)
	sh := c.shard(cfg.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.names[cfg.Name]; n != nil && !c.isClosing.Load() {
		if o := n.find(owner); o != nil {
			return o.reenter(mode, over, h)
		}
	}
	return false, nil
}

// reenter gives h a share in a hold that o has in this mode. A reader's lock under
// one's own writer's lock is not re-entry here: the store has to know of it, so
// that the writer's can be released first. The shard is locked.
func (o *ownerState) reenter(mode store.Mode, over error, h *Handle) (bool, error) {
	if o.lost > 0 {
		return false, ErrLostOuter
	}
	for _, g := range o.holds {
		// The watchdog has not declared it yet. It will, and then tell; here it is enough
		// not to build on it.
		switch {
		case g.place.lease.Valid():
		case g.delivered():
			return false, ErrLostOuter
		default: // no call has returned it, so it concerns nobody
			return false, request.ErrExpired
		}
	}
	for _, g := range o.holds {
		switch {
		case g.place.local.Mode != mode:
			continue
		case o.live >= maxHandles:
			return false, ErrTooManyHolds
		case over != nil:
			return false, over
		}
		g.add(h)
		h.delivered = true
		return true, nil
	}
	return false, nil
}

// mayAsk says why no more may be asked for under the identity of o: another owner shares
// a hold of it, which would be upgraded with it. The shard is locked.
func (o *ownerState) mayAsk() error {
	for _, g := range o.holds {
		if len(g.place.owners) > 1 {
			return store.ErrUpgrade
		}
	}
	return nil
}

// known returns the identity under which the store knows o, and makes one from id
// if there is none. An explicit owner is known by its own text, so that it can re-enter
// from another process. A private owner gets a random one each time it comes to the
// name: nothing that may still arrive for it then matters to a later hold.
func (o *ownerState) known(id string) *identity {
	if o.identity == nil {
		if !o.owner.Private() {
			id = o.owner.String()
		}
		o.identity = &identity{id: id}
	}
	return o.identity
}

// lose notes that a delivered handle of o is lost. The calls of o that wait begin again, and
// fail: nothing is granted to o until such handles are unlocked. The shard is locked.
func (o *ownerState) lose() {
	o.lost++
	o.restart()
}

// restart takes the waiters of o out of their queues, and their calls begin again: if o
// holds the lock now, they re-enter, or ask by the identity of the hold. The shard is locked.
func (o *ownerState) restart() {
	for _, a := range o.waiters {
		o.name.carryOut(a.queue.Take(&a.waiter, localqueue.Restarting))
		a.wake()
	}
	clear(o.waiters)
	o.waiters = o.waiters[:0]
}

// forget notes that a is not in the queue. The shard is locked.
func (o *ownerState) forget(a *Call) {
	if i := slices.Index(o.waiters, a); i >= 0 {
		o.waiters = slices.Delete(o.waiters, i, i+1)
	}
}

// carryOut does what the queue says. The shard is locked.
func (n *nameState) carryOut(actions []localqueue.Action) {
	for _, do := range actions {
		if do.Wake != nil {
			do.Wake.Value.(*Call).wake()
		}
		if do.Unwanted != nil {
			do.Unwanted.Value.(*place).unwanted()
		}
	}
	clear(actions) // the queue keeps the array, which must not keep calls in memory
}
