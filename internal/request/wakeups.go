package request

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/store"
)

// wakeups takes the store's events to the requests that wait in the background. A
// request is entered when the store has said "queued", so that an uncontended lock
// leaves no trace here. An event that overtakes that answer waits among the recent
// ones of its shard. If too many others come before it is looked for, it is lost, and
// its waiter asks again when the store's Retry has passed.
type wakeups struct {
	shards [16]wakeupShard
	resets atomic.Uint64 // events that say "anything may have changed"
}

type wakeupShard struct {
	mu       sync.Mutex
	requests map[string]*Request       // by id
	recent   [recentEvents]store.Event // of ids that were not entered, a ring
	next     int
}

// recentEvents is how many events of unknown ids each shard remembers. Most are
// for requests that were abandoned meanwhile.
const recentEvents = 32

var hashSeed = maphash.MakeSeed()

func (w *wakeups) shard(id string) *wakeupShard {
	return &w.shards[maphash.String(hashSeed, id)%uint64(len(w.shards))]
}

// enter has r get its events from now on, and returns one that came before, if any.
func (w *wakeups) enter(r *Request) (missed store.Event) {
	sh := w.shard(r.req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.requests == nil {
		sh.requests = make(map[string]*Request)
	}
	sh.requests[r.req.ID] = r
	for i, e := range sh.recent {
		if e.ID == r.req.ID {
			if e.Token >= missed.Token {
				missed = e
			}
			sh.recent[i] = store.Event{}
		}
	}
	return missed
}

func (w *wakeups) remove(r *Request) {
	sh := w.shard(r.req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.requests, r.req.ID)
}

func (w *wakeups) count() (n int) {
	for i := range w.shards {
		sh := &w.shards[i]
		sh.mu.Lock()
		n += len(sh.requests)
		sh.mu.Unlock()
	}
	return n
}

// deliver is the sink that the store calls.
func (w *wakeups) deliver(e store.Event) {
	if e.ID != "" {
		sh := w.shard(e.ID)
		sh.mu.Lock()
		r := sh.requests[e.ID]
		if r == nil {
			sh.recent[sh.next] = e
			sh.next = (sh.next + 1) % recentEvents
		}
		sh.mu.Unlock()
		if r != nil {
			r.onEvent(e)
		}
		return
	}
	// Counted first: a request that is about to be entered looks at the count after it.
	w.resets.Add(1)
	for i := range w.shards {
		for _, r := range w.shards[i].all() {
			r.onEvent(e)
		}
	}
}

func (sh *wakeupShard) all() []*Request {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	list := make([]*Request, 0, len(sh.requests))
	for _, r := range sh.requests {
		list = append(list, r)
	}
	return list
}
