package dlock

import (
	"hash/maphash"
	"sync"
)

// registry holds what this process knows of the names in use. A name is in it
// while an acquisition is under way or a handle is not unlocked, counted and
// never evicted; a free name leaves nothing behind. It is sharded so that
// distinct names do not contend.
type registry struct {
	shards [64]shard
}

// shard guards all in-process state of its names: their parties, their queue
// and the handles of their grants. Nothing blocks or calls out while mu is held.
type shard struct {
	mu    sync.Mutex
	names map[string]*local
}

// hashSeed is one for all clients: they spread names alike, which harms nobody.
var hashSeed = maphash.MakeSeed()

func (r *registry) shard(name string) *shard {
	return &r.shards[maphash.String(hashSeed, name)%uint64(len(r.shards))]
}

// local is one name in this process.
type local struct {
	shard   *shard
	name    string
	parties map[Owner]*party
	line    line
	reading *tenure // the last one that readers could join; nil before the first
}

// party is one owner's standing on one name in this process: what it holds, and
// how much it has under way.
type party struct {
	local *local
	owner Owner
	refs  int // acquisitions under way, and handles not unlocked

	id       string // by which the store knows it
	attempts int    // how many were made by that id, whatever became of them
	issued   uint64 // the token by which the store knows the last hold that was passed on to it,
	given    uint64 // and the one that it got

	grants  []*grant
	waiting []*ticket // in the local queue
	covered []*ticket // at its front, relying on the asking of somebody else
	live    int       // handles that hold
	lost    int       // handles of lost grants, not unlocked yet
}

// join finds or makes the party of owner on name and counts one acquisition in.
// It returns with the shard locked.
func (r *registry) join(name string, owner Owner) *party {
	sh := r.shard(name)
	sh.mu.Lock()
	l := sh.names[name]
	if l == nil {
		if sh.names == nil {
			sh.names = make(map[string]*local)
		}
		l = &local{shard: sh, name: name, parties: make(map[Owner]*party)}
		sh.names[name] = l
	}
	p := l.parties[owner]
	if p == nil {
		p = &party{local: l, owner: owner}
		if owner.private {
			p.id = newID()
		} else {
			p.id = owner.String()
		}
		l.parties[owner] = p
	}
	p.refs++
	return p
}

// rename has the store know a private owner by another id from now on, because
// others go on by the one that it had. The shard is locked.
func (p *party) rename() { p.id, p.attempts = newID(), 0 }

// leave counts one out. The shard is locked.
func (p *party) leave() {
	if p.refs--; p.refs > 0 {
		return
	}
	l := p.local
	delete(l.parties, p.owner)
	if len(l.parties) == 0 {
		l.line.dismiss()
		delete(l.shard.names, l.name)
	}
}
