package dlock

import (
	"hash/maphash"
	"sync"

	"github.com/dlock-go/dlock/store"
)

// pushes takes the store's events to the attempts that wait for them. An
// attempt is entered before its first request is sent, for the event may
// overtake the reply. It is sharded so that attempts do not contend.
type pushes struct {
	shards [16]pushShard
}

type pushShard struct {
	mu      sync.Mutex
	waiting map[string]*attempt // by acquisition id
}

func (p *pushes) shard(id string) *pushShard {
	return &p.shards[maphash.String(hashSeed, id)%uint64(len(p.shards))]
}

func (p *pushes) add(a *attempt) {
	sh := p.shard(a.req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.waiting == nil {
		sh.waiting = make(map[string]*attempt)
	}
	sh.waiting[a.req.ID] = a
}

func (p *pushes) remove(a *attempt) {
	sh := p.shard(a.req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.waiting, a.req.ID)
}

// deliver is the sink that the store calls. An id that is not waiting (any
// more) is no concern: if it was granted, whoever left it gives it back.
func (p *pushes) deliver(e store.Event) {
	if e.ID != "" {
		sh := p.shard(e.ID)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if a := sh.waiting[e.ID]; a != nil {
			a.push(e)
		}
		return
	}
	for i := range p.shards {
		p.shards[i].hint()
	}
}

// hint tells all who wait that anything may have changed.
func (sh *pushShard) hint() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, a := range sh.waiting {
		a.hint()
	}
}
