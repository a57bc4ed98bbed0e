package etcd

import (
	"context"
	"errors"
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

// maxEnders is how many keys are deleted at once. In an outage of a TTL the time of all
// that the handle has is up.
const maxEnders = 16

// begin has a claim end. Callers have mu.
func (cs *claims) begin(c *claim) {
	c.at, c.over = time.Time{}, true
	cs.ending = append(cs.ending, c)
	if cs.enders < maxEnders && cs.s.tasks.Go(cs.endSome) {
		cs.enders++
	}
}

// endNow has a claim end before its time.
func (cs *claims) endNow(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !c.over && cs.m[c.req.ID] == c {
		cs.begin(c)
	}
}

// endSome ends claims until there are none to end, or the handle is closed.
func (cs *claims) endSome() {
	for c := cs.nextToEnd(); c != nil; c = cs.nextToEnd() {
		cs.end(c)
	}
}

func (cs *claims) nextToEnd() (c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.ending) == 0 || cs.s.ctx.Err() != nil {
		cs.enders--
		return nil
	}
	c, cs.ending[0] = cs.ending[0], nil
	cs.ending = cs.ending[1:]
	return c
}

// end deletes the key of a claim whose time is up, unless the claim goes on. A hold that
// another handle has put on a lease of its own is that one's.
func (cs *claims) end(c *claim) {
	for {
		cs.s.rooms.leave(c)
		ctx, cancel := context.WithTimeout(cs.s.ctx, callTimeout)
		there, mod, err := cs.delete(ctx, c)
		cancel()
		switch {
		case err != nil:
			cs.endLater(c, err)
			return
		case !there:
			cs.forget(c)
			cs.s.rooms.leave(c) // again, for an answer that came late may have had it enter anew
			return
		case cs.goesOn(c, mod):
			return
		}
	}
}

// endLater has the end of a claim tried again. What the server refuses is a matter of
// that claim alone; with any other error the others would fare no better now.
func (cs *claims) endLater(c *claim, err error) {
	refused := errors.Is(cs.s.outcome(err), store.ErrRefused)
	cs.mu.Lock()
	c.pause = max(c.pause, firstDelete)
	if cs.m[c.req.ID] == c {
		c.deadline = time.Now().Add(c.pause)
		cs.schedule(c)
	}
	if refused {
		c.pause = min(2*c.pause, lastDelete)
	}
	cs.mu.Unlock()
	if !refused {
		sleep(cs.s.ctx, firstDelete)
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
	c.over, c.pause = false, 0
	c.deadline = time.Now().Add(c.req.WaitTTL)
	cs.schedule(c)
	return true
}
