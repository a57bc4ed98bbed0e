package core

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
)

// shard guards what this process knows of its names. Names are spread over shards
// so that distinct names do not contend.
type shard struct {
	mu     sync.Mutex
	names  map[string]*nameState
	counts shardCounts
	calls  request.Counter // lock calls and unlocks under way, for Close to wait for
}

// hashSeed is one for all clients: they spread names alike, which harms nobody.
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
	sole   *ownerState           // the only owner; nil if there is none or more than one
	owners map[Owner]*ownerState // all owners, if there was ever more than one

	queue      localqueue.Queue
	background []*place // that ask for the front of the queue
	reading    *place   // the last one that readers could join; nil before the first
	serving    *place   // the last one that an owner was given; nil before the first
	ownerHolds int32    // of all owners
	storeHolds int32
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
	lost int32 // handles of lost holds, not unlocked yet
}

// identity is an owner as the store knows it. A hold may pass from one owner to
// another inside the process only while nothing but the hold was asked for under
// its identity: else that would be granted as a re-entry of the other owner.
type identity struct {
	id       string
	requests int // acquisition ids that were asked for under it
}

// enter counts one call of an owner in. The shard is locked. The memory of the
// call serves for what is made.
func (a *Call) enter(sh *shard) {
	name, owner := a.Config.Name, a.Owner
	n := sh.names[name]
	if n == nil {
		if sh.names == nil {
			sh.names = make(map[string]*nameState)
		}
		n = &nameState{client: a.Client, shard: sh, name: name}
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

func (n *nameState) find(owner Owner) *ownerState {
	if n.owners != nil {
		return n.owners[owner]
	}
	if n.sole != nil && n.sole.owner == owner {
		return n.sole
	}
	return nil
}

func (n *nameState) add(o *ownerState) {
	switch {
	case n.owners == nil && n.sole == nil:
		n.sole = o
		return
	case n.owners == nil:
		n.owners = map[Owner]*ownerState{n.sole.owner: n.sole}
		n.sole = nil
	}
	n.owners[o.owner] = o
}

func (n *nameState) allOwners() []*ownerState {
	if n.sole != nil {
		return []*ownerState{n.sole}
	}
	list := make([]*ownerState, 0, len(n.owners))
	for _, o := range n.owners {
		list = append(list, o)
	}
	return list
}

// alone reports whether o is the only owner here.
func (o *ownerState) alone() bool { return o.name.sole == o || len(o.name.owners) == 1 }

// leave counts one call or handle out. The shard is locked.
func (o *ownerState) leave() {
	if o.refs--; o.refs > 0 {
		return
	}
	n := o.name
	if n.sole == o {
		n.sole = nil
	} else {
		delete(n.owners, o.owner)
	}
	if n.sole == nil && len(n.owners) == 0 {
		delete(n.shard.names, n.name)
	}
}

// known returns the identity under which the store knows o, and makes one from id
// if there is none.
func (o *ownerState) known(id string) *identity {
	if o.identity == nil {
		if !o.owner.Private {
			id = o.owner.String()
		}
		o.identity = &identity{id: id}
	}
	return o.identity
}

// bypass takes the waiters of o out of their queues: o holds the lock now, so their
// calls begin again. They re-enter, or ask by the identity of the hold. The shard is locked.
func (o *ownerState) bypass() {
	for len(o.waiters) > 0 {
		a := o.waiters[0]
		o.waiters = slices.Delete(o.waiters, 0, 1)
		o.name.carryOut(a.queue.Bypass(&a.waiter))
		a.wake()
	}
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
}

// dropSpares gives up the places that no waiter relies on, when nobody in this
// process holds the name any more. It returns channels that tell when they are gone.
// The shard is locked.
func (n *nameState) dropSpares() (gone []<-chan struct{}) {
	for _, p := range slices.Clone(n.background) { // drop takes p out of the list
		if !p.local.Wanted() {
			gone = append(gone, p.request.Cleared())
			p.drop()
		}
	}
	return gone
}
