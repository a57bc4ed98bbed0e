package etcd

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// The pauses between tries to delete a key whose time is up. They grow where the
// server refuses to.
const (
	firstDelete = 200 * time.Millisecond
	lastDelete  = 10 * time.Second
)

// claim is what the handle knows of an id that it asked for. Because the lease
// below a key lives as long as any hold on it is renewed, each claim has a
// deadline of its own, at which the handle deletes its key.
type claim struct {
	req store.Request
	dir string
	key string

	// Guarded by claims.mu.
	deadline time.Time
	at       time.Time // of its item in due; zero if it has none
	over     bool      // the deadline has passed: it must not be renewed any more
	lease    *lease    // of a hold; nil for a place, or if unknown
	mod      int64     // revision of the key's last write by this handle; 0: none confirmed
	token    uint64
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
	if l != nil || mod > c.mod { // else it is an older word of what is known already
		c.lease = l
	}
	if mod >= c.mod || c.token == 0 {
		c.token = token
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
	c.mod = max(c.mod, mod)
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
	if c.token == 0 {
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
		case c == nil || !c.at.Equal(first.at):
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

// begin has a claim end. Callers have mu.
func (cs *claims) begin(c *claim) {
	c.at, c.over = time.Time{}, true
	cs.s.tasks.Go(func() { cs.end(c) })
}

// endNow has a claim end before its time.
func (cs *claims) endNow(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !c.over && cs.m[c.req.ID] == c {
		cs.begin(c)
	}
}

// end deletes the key of a claim whose time is up until that is confirmed or
// the handle closed, unless the claim goes on. A hold that another handle has put on
// a lease of its own is that one's.
func (cs *claims) end(c *claim) {
	pause := firstDelete
	for {
		cs.s.rooms.leave(c)
		ctx, cancel := context.WithTimeout(cs.s.ctx, callTimeout)
		there, mod, err := cs.delete(ctx, c)
		cancel()
		switch {
		case err != nil:
			if !sleep(cs.s.ctx, pause) {
				return
			}
			if errors.Is(cs.s.outcome(err), store.ErrRefused) {
				pause = min(2*pause, lastDelete)
			}
		case !there:
			cs.forget(c)
			cs.s.rooms.leave(c) // again, for an answer that came late may have had it enter anew
			return
		case cs.goesOn(c, mod):
			return
		}
	}
}

// delete deletes the key of a claim as this handle knows it or, if it knows none, as it
// is. Another by then is there at mod, if it is this handle's; a late request finds it
// to be another too.
func (cs *claims) delete(ctx context.Context, c *claim) (there bool, mod int64, err error) {
	if _, mod, _, _ = cs.known(c); mod == 0 {
		answer, err := cs.s.client.Get(ctx, c.key)
		if err != nil || len(answer.Kvs) == 0 {
			return false, 0, err
		}
		mod = answer.Kvs[0].ModRevision
	}
	if cs.find(c.req.ID) != c {
		return true, 0, nil // as that of another claim, perhaps in other data
	}
	answer, err := cs.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(c.key), "<", mod+1)).
		Then(clientv3.OpDelete(c.key)).
		Else(clientv3.OpGet(c.key)).
		Commit()
	if err != nil || answer.Succeeded {
		return false, 0, err
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		return cs.s.leases.have(clientv3.LeaseID(kv.Lease), c), kv.ModRevision, nil
	}
	return false, 0, nil
}

// goesOn reports whether a claim that was to end does not, because its key has been
// written at mod since. The claim of a place goes on: either that has been granted by
// another handle, or an ask has kept it, and has not been answered. From now on it
// has WaitTTL. A hold whose time was up has been given up for lost.
func (cs *claims) goesOn(c *claim, mod int64) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.m[c.req.ID] != c {
		return true // as another claim, of an ask that came since
	}
	c.mod = max(c.mod, mod)
	if c.token != 0 {
		return false
	}
	c.over = false
	c.deadline = time.Now().Add(c.req.WaitTTL)
	cs.schedule(c)
	return true
}
