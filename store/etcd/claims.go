package etcd

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// slack is how many looks that are not valid any more are worth no cleaning up.
const slack = 64

// claim is what the handle knows of an id that it asked for. Because the lease
// below a key lives as long as any hold on it is renewed, each claim has a
// deadline of its own, at which the handle deletes its key.
type claim struct {
	req store.Request
	dir string
	key string

	// Guarded by claims.mu.
	deadline time.Time     // once it is over: when its end is tried again
	at       time.Time     // of its item in due; zero if it has none
	over     bool          // the deadline has passed: it must not be renewed any more
	pause    time.Duration // before its end is tried again
	lease    *lease        // of a hold; nil for a place, or if unknown
	mod      int64         // revision of the key's last write by this handle; 0: none confirmed
	token    uint64
	heldAt   int64 // revision at which it was the hold with this token; at mod it may be a place again
}

// claims are those of a handle, and the clock that ends them.
type claims struct {
	s    *Store
	mu   sync.Mutex
	m    map[string]*claim
	of   map[party]int // how many there are of an owner on a name
	due  dueHeap       // one valid item for each claim, not later than its deadline
	wake chan struct{} // holds one: the first item has changed
	on   bool          // the sweeper runs

	ending []*claim // are over, and their keys to be deleted
	enders int      // how many goroutines do that
}

// party is an owner on a name.
type party struct{ dir, owner string }

func (c *claim) party() party { return party{c.dir, c.req.Owner} }

// item may be early: the sweeper looks at the claim and puts it back. It is not valid
// any more if the claim has another, earlier one.
type item struct {
	at time.Time
	id string
}

type dueHeap []item

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(item)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = item{} // it would keep the id
	*h = old[:len(old)-1]
	return last
}

// track makes a claim of a request that is about to be sent, or finds the one
// there is. Whatever becomes of the request, its key goes in the end.
func (cs *claims) track(req store.Request, dir, key string) (c *claim, fresh bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c = cs.m[req.ID]
	if fresh = c == nil; fresh {
		c = &claim{req: req, dir: dir, key: key}
		cs.m[req.ID] = c
		cs.of[c.party()]++
		c.deadline = time.Now().Add(max(req.TTL, req.WaitTTL))
		cs.schedule(c)
	}
	return c, fresh
}

// schedule sees to it that the sweeper looks at a claim no later than at its deadline.
func (cs *claims) schedule(c *claim) {
	if !c.at.IsZero() && !c.deadline.Before(c.at) {
		return
	}
	c.at = c.deadline
	heap.Push(&cs.due, item{c.deadline, c.req.ID})
	if !cs.on {
		cs.on = true
		cs.s.tasks.Go(cs.sweep)
	}
	select {
	case cs.wake <- struct{}{}:
	default:
	}
}

// find returns the claim of an id, or nil.
func (cs *claims) find(id string) *claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.m[id]
}

// forget ends a claim whose key is gone.
func (cs *claims) forget(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.m[c.req.ID] != c {
		return
	}
	delete(cs.m, c.req.ID)
	if cs.of[c.party()]--; cs.of[c.party()] == 0 {
		delete(cs.of, c.party())
	}
	// Behind one long hold nothing would come up to be dropped.
	if len(cs.due) > 2*len(cs.m)+slack {
		cs.due = slices.DeleteFunc(cs.due, func(i item) bool { return !cs.valid(i) })
		heap.Init(&cs.due)
	}
}

func (cs *claims) valid(i item) bool {
	c := cs.m[i.id]
	return c != nil && c.at.Equal(i.at)
}

// alone: this handle has no other claim of the same owner on the name.
func (cs *claims) alone(c *claim) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.of[c.party()] <= 1
}

// held notes a confirmed hold. It returns false if the claim's time is up.
func (cs *claims) held(c *claim, l *lease, mod int64, token uint64, ttl time.Duration) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.over {
		return false
	}
	if mod > c.mod || l != nil && (mod == c.mod || c.lease == nil) { // else it is an older word of what is known already
		c.lease = l
	}
	if mod >= c.mod || c.token == 0 {
		c.token, c.heldAt = token, mod
	}
	c.mod = max(c.mod, mod)
	c.extend(ttl)
	return true
}

// renewed moves the deadline of a hold. It returns false if its time was up.
func (cs *claims) renewed(c *claim, ttl time.Duration) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.over {
		return false
	}
	c.deadline = time.Now().Add(ttl)
	cs.schedule(c)
	return true
}

// waits notes a confirmed place, unless that has become a hold since. It returns false
// if its time was up.
func (cs *claims) waits(c *claim, mod int64) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.over {
		return false
	}
	if c.token != 0 && mod < c.mod {
		return true
	}
	if mod > c.mod { // a hold that it was before is gone
		c.mod, c.lease, c.token = mod, nil, 0
	}
	c.deadline = time.Now().Add(c.req.WaitTTL)
	cs.schedule(c)
	return true
}

func (c *claim) extend(ttl time.Duration) {
	if d := time.Now().Add(ttl); d.After(c.deadline) {
		c.deadline = d
	}
}

// known is a copy of what may change.
func (cs *claims) known(c *claim) (l *lease, mod int64, token uint64, over bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return c.lease, c.mod, c.token, c.over
}

// entry is the hold of a claim as far as this handle knows, or nil.
func (cs *claims) entry(c *claim) *entry {
	if c == nil {
		return nil
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.token == 0 || c.heldAt != c.mod {
		return nil
	}
	e := newEntry(c.key, c.req)
	e.held, e.mod, e.token = true, c.mod, c.token
	return e
}

// sweep ends claims at their deadlines until the handle is closed; the leases
// do the rest.
func (cs *claims) sweep() {
	for {
		left := cs.expire()
		timer := time.NewTimer(left)
		select {
		case <-cs.s.ctx.Done():
			timer.Stop()
			return
		case <-cs.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// expire begins to delete what is over, and returns the time until the next.
func (cs *claims) expire() time.Duration {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := time.Now()
	for len(cs.due) > 0 {
		first := cs.due[0]
		c := cs.m[first.id]
		switch {
		case !cs.valid(first):
			heap.Pop(&cs.due)
		case first.at.After(now):
			return first.at.Sub(now)
		case c.deadline.After(now):
			c.at, cs.due[0].at = c.deadline, c.deadline
			heap.Fix(&cs.due, 0)
		default:
			heap.Pop(&cs.due)
			cs.begin(c)
		}
	}
	return time.Hour
}
